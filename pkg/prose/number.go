package prose

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size formats a number of bytes in the largest unit of which there is at least one, with one
// decimal below ten: "64 GiB", "2.0 TiB".
func Size(bytes uint64) string {
	value, unit := scaled(bytes)
	if value < 10 && unit != units[0] {
		return fmt.Sprintf("%.1f %s", value, unit)
	}
	return fmt.Sprintf("%.0f %s", value, unit)
}

// SetSize formats a size that a user has set, which is often round: "2 TiB", "1.5 GiB", "64.5 GiB".
func SetSize(bytes uint64) string {
	value, unit := scaled(bytes)
	return strconv.FormatFloat(math.Round(value*10)/10, 'f', -1, 64) + " " + unit
}

var units = [...]string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

func scaled(bytes uint64) (value float64, unit string) {
	value, at := float64(bytes), 0
	for ; value >= 1024 && at < len(units)-1; at++ {
		value /= 1024
	}
	return value, units[at]
}

// Grouped formats a number with commas between the thousands.
func Grouped[N int | int64](n N) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Noun returns the form of a word after a number: "node" for 1, "nodes" for others.
func Noun(n int, one string) string {
	if n == 1 {
		return one
	}
	return one + "s"
}

// Ordinals lists the numbers from 0 to n-1: "0,1,2".
func Ordinals(n int) string {
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = strconv.Itoa(i)
	}
	return strings.Join(numbers, ",")
}
