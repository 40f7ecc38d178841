package membership

import (
	"fmt"
	"strconv"

	"github.com/bringupd/bringupd/pkg/roles"
)

// SandboxQuorum is the number of sandboxes that must be ready before the gate opens.
type SandboxQuorum struct {
	roles.Quorum
	word string // "all", "any", "head", or empty
}

// ParseSandboxQuorum parses all, any, head or a number of at least 1.
func ParseSandboxQuorum(s string) (SandboxQuorum, error) {
	switch s {
	case "all":
		return SandboxQuorum{roles.QuorumAll, s}, nil
	case "any", "head":
		return SandboxQuorum{1, s}, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return SandboxQuorum{}, fmt.Errorf("cannot require %q sandboxes: "+
			"give all, any, head or a number of at least 1", s)
	}
	return SandboxQuorum{Quorum: roles.Quorum(n)}, nil
}

// String returns the form that ParseSandboxQuorum parses.
func (r SandboxQuorum) String() string {
	if r.word != "" {
		return r.word
	}
	return strconv.Itoa(int(r.Quorum))
}

// IsOfHead reports whether the sandbox of the head is required, and no other.
func (r SandboxQuorum) IsOfHead() bool { return r.word == "head" }

// ExceedsSize reports whether a job of size nodes has too few nodes for the required number.
func (r SandboxQuorum) ExceedsSize(size int) bool { return r.Of(size) > size }
