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
	RoleAuto    Role = "auto"    // head on node 0, worker elsewhere
	RoleHead    Role = "head"    // runs the head's service and the driver
	RoleWorker  Role = "worker"  // runs the worker's service
	RoleSandbox Role = "sandbox" // runs only this node's sandbox
)

var allRoles = []Role{RoleAuto, RoleHead, RoleWorker, RoleSandbox}

// ParseRole returns the role with this name. An empty string is RoleAuto.
func ParseRole(s string) (Role, error) {
	if s == "" {
		return RoleAuto, nil
	}
	if r := Role(strings.ToLower(s)); slices.Contains(allRoles, r) {
		return r, nil
	}
	return "", fmt.Errorf("cannot use role %q: auto, head, worker and sandbox are accepted", s)
}

// ElectRole returns the role of this node for the requested role. The head is node 0, so all nodes
// agree without communication. A role that would leave the job without a head or with two is a
// LaunchError.
func (id Identity) ElectRole(role Role) (Role, error) {
	own := RoleWorker
	if id.NodeIndex == 0 {
		own = RoleHead
	}
	switch role {
	case RoleAuto, "":
		return own, nil
	case own, RoleSandbox:
		return role, nil
	case RoleHead:
		return "", &LaunchError{
			Problem: fmt.Sprintf("cannot be head as node %d of %d (%s): the head is node 0, and a job has one", id.NodeIndex, id.Size, id.Host),
			Fix:     "give --role=auto to all nodes, or --role=head to node 0 only",
		}
	case RoleWorker:
		return "", &LaunchError{
			Problem: fmt.Sprintf("cannot be worker as node 0 of %d (%s): the head is node 0, and the job would have none", id.Size, id.Host),
			Fix:     "give --role=auto to all nodes, or --role=worker to the nodes above 0 only",
		}
	default:
		return "", fmt.Errorf("internal error: no role %q", string(role))
	}
}
