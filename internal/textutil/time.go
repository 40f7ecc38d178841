package textutil

import (
	"fmt"
	"strings"
	"time"
)

// RoundedDuration formats a duration with a useful number of digits. It shows tenths of a second
// only if the duration is less than tenths.
func RoundedDuration(d, tenths time.Duration) string {
	unit := time.Second
	switch {
	case d < 10*time.Millisecond:
		unit = time.Millisecond / 10
	case d < time.Second:
		unit = time.Millisecond
	case d < tenths:
		unit = time.Second / 10
	}
	return d.Round(unit).String()
}

// BriefDuration formats a duration with a space before the unit: "12 ms", "1.25 s", "3 min 07 s".
func BriefDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "−" + BriefDuration(-d)
	case d == 0:
		return "0"
	case d < 100*time.Microsecond:
		return fmt.Sprintf("%d µs", max(1, d.Round(time.Microsecond)/time.Microsecond))
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond)/time.Millisecond)
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%d min %02d s", d/time.Minute, d%time.Minute/time.Second)
	default:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%d h %02d min", d/time.Hour, d%time.Hour/time.Minute)
	}
}

// FlagDuration formats a duration as a user would write it for a flag: 5m instead of 5m0s.
func FlagDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
