package roles

import (
	"fmt"
	"slices"
	"strings"
)

// Role is the function of a daemon on its node.
type Role string

// The roles that can be requested.
const (
	Auto    Role = "auto"    // head on node 0, worker elsewhere
	Head    Role = "head"    // runs the head's service and the driver
	Worker  Role = "worker"  // runs the worker's service
	Sandbox Role = "sandbox" // runs only this node's sandbox
)

var allRoles = []Role{Auto, Head, Worker, Sandbox}

// ParseRole returns the role with this name. An empty string is Auto.
func ParseRole(s string) (Role, error) {
	if s == "" {
		return Auto, nil
	}
	if r := Role(strings.ToLower(s)); slices.Contains(allRoles, r) {
		return r, nil
	}
	return "", fmt.Errorf("cannot take role %q: auto, head, worker and sandbox are accepted", s)
}

// Elect returns the role of this node for the requested role. The head is node 0, so all nodes
// agree without communication. A role that would leave the job without a head or with two is a
// LaunchError.
func (id Identity) Elect(role Role) (Role, error) {
	own := Worker
	if id.Rank == 0 {
		own = Head
	}
	switch role {
	case Auto, "":
		return own, nil
	case own, Sandbox:
		return role, nil
	case Head:
		return "", &LaunchError{
			Problem: fmt.Sprintf("cannot be head on rank %d of %d (%s): the head is rank 0, and a job has one", id.Rank, id.Size, id.Host),
			Mend:    "give --role=auto to all ranks, or --role=head to rank 0 alone",
		}
	case Worker:
		return "", &LaunchError{
			Problem: fmt.Sprintf("cannot be worker on rank 0 of %d (%s): the head is rank 0, and the job would have none", id.Size, id.Host),
			Mend:    "give --role=auto to all ranks, or --role=worker to the ranks above 0 alone",
		}
	default:
		return "", fmt.Errorf("internal error: no role %q", string(role))
	}
}
