package textutil

import (
	"fmt"
	"strconv"
	"strings"
)

// FormatSize formats a number of bytes in the largest unit of which there is at least one, with one
// decimal below ten: "64 GiB", "2.0 TiB".
func FormatSize(bytes uint64) string {
	value, at := float64(bytes), 0
	for ; value >= 1024 && at < len(sizeUnits)-1; at++ {
		value /= 1024
	}
	unit := sizeUnits[at]
	if value < 10 && unit != sizeUnits[0] {
		return fmt.Sprintf("%.1f %s", value, unit)
	}
	return fmt.Sprintf("%.0f %s", value, unit)
}

var sizeUnits = [...]string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// GroupThousands formats a number with commas between the thousands.
func GroupThousands[N int | int64](n N) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// PluralForm returns the form of a word after a number: "node" for 1, "nodes" for others.
func PluralForm(n int, one string) string {
	if n == 1 {
		return one
	}
	return one + "s"
}

// ListOrdinals lists the numbers from 0 to n-1: "0,1,2".
func ListOrdinals(n int) string {
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = strconv.Itoa(i)
	}
	return strings.Join(numbers, ",")
}
