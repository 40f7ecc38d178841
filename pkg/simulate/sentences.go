package simulate

import (
	"fmt"

	"github.com/bringupd/bringupd/internal/textutil"
)

// formatRate formats a number of calls per second. Small numbers have two decimals.
func formatRate(r float64) string {
	if r < 10 {
		return fmt.Sprintf("%.2f", r)
	}
	return textutil.GroupThousands(int64(r + 0.5))
}

// formatMiB formats a number of bytes in MiB.
func formatMiB(bytes int64) string { return textutil.GroupThousands((bytes+1<<19)>>20) + " MiB" }

// formatPercent formats a fraction as a percentage.
func formatPercent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }
