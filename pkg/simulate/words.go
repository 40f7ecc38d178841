package simulate

import (
	"fmt"

	"github.com/bringupd/bringupd/internal/textutil"
)

// rate formats a number of calls per second. Small numbers have two decimals.
func rate(r float64) string {
	if r < 10 {
		return fmt.Sprintf("%.2f", r)
	}
	return textutil.GroupThousands(int64(r + 0.5))
}

// size formats a number of bytes in MiB.
func size(bytes int64) string { return textutil.GroupThousands((bytes+1<<19)>>20) + " MiB" }

// percent formats a fraction as a percentage.
func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }
