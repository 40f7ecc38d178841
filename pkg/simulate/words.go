package simulate

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// inWords writes a time with the digits that mean something.
func inWords(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < 100*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	default:
		return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
	}
}

// grouped writes a number with commas between the thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, digit := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}

// rate writes calls a second: few of them need their parts.
func rate(r float64) string {
	if r < 10 {
		return fmt.Sprintf("%.2f", r)
	}
	return grouped(int64(r + 0.5))
}

// size writes bytes as MiB.
func size(bytes int64) string { return grouped((bytes+1<<19)>>20) + " MiB" }

func percent(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }
