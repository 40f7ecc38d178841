package gate

import (
	"fmt"
	"strconv"
)

// SandboxQuorum is the number of sandboxes that must be ready before the gate opens.
type SandboxQuorum struct {
	word  string // "all", "any", "head", or empty
	count int
}

// ParseSandboxQuorum parses all, any, head or a number of at least 1.
func ParseSandboxQuorum(s string) (SandboxQuorum, error) {
	switch s {
	case "all", "any", "head":
		return SandboxQuorum{word: s}, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return SandboxQuorum{}, fmt.Errorf("cannot require %q sandboxes: give all, any, head or a number of at least 1", s)
	}
	return SandboxQuorum{count: n}, nil
}

// String returns the form that ParseSandboxQuorum parses.
func (r SandboxQuorum) String() string {
	if r.word != "" {
		return r.word
	}
	return strconv.Itoa(r.count)
}

// IsMet reports whether the sandboxes of these nodes, which must be sorted, are enough for a job of
// size nodes.
func (r SandboxQuorum) IsMet(ready []int, size int) bool {
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

// ExceedsSize reports whether a job of size nodes has too few nodes for the required number.
func (r SandboxQuorum) ExceedsSize(size int) bool { return r.word == "" && r.count > size }

// IsUnreachable reports whether the requirement can no longer be met, if the sandboxes of these
// nodes, which must be sorted, are lost.
func (r SandboxQuorum) IsUnreachable(lost []int, size int) bool {
	if r.word == "head" {
		return len(lost) > 0 && lost[0] == 0
	}
	left := make([]int, size-len(lost))
	return !r.IsMet(left, size)
}
