package gate

import (
	"fmt"
	"strconv"
)

// Require is the number of sandboxes that must be ready before the gate opens.
type Require struct {
	word  string // "all", "any", "head", or empty
	count int
}

// ParseRequire parses all, any, head or a number of at least 1.
func ParseRequire(s string) (Require, error) {
	switch s {
	case "all", "any", "head":
		return Require{word: s}, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return Require{}, fmt.Errorf("cannot require %q sandboxes: give all, any, head or a number of at least 1", s)
	}
	return Require{count: n}, nil
}

// String returns the form that ParseRequire parses.
func (r Require) String() string {
	if r.word != "" {
		return r.word
	}
	return strconv.Itoa(r.count)
}

// Met reports whether the sandboxes of these nodes, which must be sorted, are enough for a job of
// size nodes.
func (r Require) Met(ready []int, size int) bool {
	switch r.word {
	case "all":
		return len(ready) == size
	case "any":
		return len(ready) > 0
	case "head":
		return len(ready) > 0 && ready[0] == 0
	default:
		return len(ready) >= r.count
	}
}

// Exceeds reports whether a job of size nodes has too few nodes for the required number.
func (r Require) Exceeds(size int) bool { return r.word == "" && r.count > size }

// Missed reports whether the requirement can no longer be met, if the sandboxes of these nodes,
// which must be sorted, are lost.
func (r Require) Missed(lost []int, size int) bool {
	if r.word == "head" {
		return len(lost) > 0 && lost[0] == 0
	}
	left := make([]int, size-len(lost))
	return !r.Met(left, size)
}
