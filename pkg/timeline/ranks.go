package timeline

import (
	"strconv"
	"strings"
)

// parseRanks reads a list such as 1-3,7 of ranks below size. What is none is
// left out: it may be anybody's text.
func parseRanks(list string, size int) []int {
	var ranks []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, two := strings.Cut(part, "-")
		if !two {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from < 0 || to < from || to >= size {
			continue
		}
		for rank := from; rank <= to && len(ranks) < size; rank++ {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}
