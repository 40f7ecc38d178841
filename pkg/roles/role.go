// Package roles defines the roles of a run: which program runs on which nodes, and which function
// each daemon has. Its functions are pure; package launcher below it finds out who this daemon is.
package roles

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// DaemonRole is the function of a daemon on its node.
type DaemonRole string

// The roles that can be requested.
const (
	RoleAuto    DaemonRole = "auto"    // head on node 0, worker elsewhere
	RoleHead    DaemonRole = "head"    // runs the head's service and the driver
	RoleWorker  DaemonRole = "worker"  // runs the worker's service
	RoleSandbox DaemonRole = "sandbox" // runs only this node's sandbox
)

// SandboxStep is the name of the job step of daemons with [RoleSandbox].
const SandboxStep = "sandbox"

var allRoles = []DaemonRole{RoleAuto, RoleHead, RoleWorker, RoleSandbox}

// ParseRole returns the role with this name. An empty string is RoleAuto.
func ParseRole(s string) (DaemonRole, error) {
	if s == "" {
		return RoleAuto, nil
	}
	if r := DaemonRole(strings.ToLower(s)); slices.Contains(allRoles, r) {
		return r, nil
	}
	return "", fmt.Errorf("cannot use role %q: auto, head, worker and sandbox are accepted", s)
}

// ElectRole returns the role of the daemon with identity id for the requested role. The head is node 0, so all nodes
// agree without communication. A role that would leave the job without a head or with two is a
// launcher.LaunchError.
func ElectRole(id launcher.Identity, role DaemonRole) (DaemonRole, error) {
	own := RoleWorker
	if id.NodeIndex == 0 {
		own = RoleHead
	}
	switch role {
	case RoleAuto, "":
		return own, nil
	case RoleSandbox:
		if !id.Launcher.Traits().HasSteps {
			return role, &launcher.LaunchError{
				Problem: "cannot use --role=sandbox without Slurm: its run is identified by the Slurm job",
				Fix:     "give --sandbox-cmd to the run itself",
			}
		}
		return role, nil
	case own:
		return role, nil
	case RoleHead:
		return "", &launcher.LaunchError{
			Problem: fmt.Sprintf("cannot be head as node %d of %d (%s): the head is node 0, and a job has one",
				id.NodeIndex, id.Size, id.Host),
			Fix: "give --role=auto to all nodes, or --role=head to node 0 only",
		}
	case RoleWorker:
		return "", &launcher.LaunchError{
			Problem: fmt.Sprintf("cannot be worker as node 0 of %d (%s): the head is node 0, and the "+
				"job would have none", id.Size, id.Host),
			Fix: "give --role=auto to all nodes, or --role=worker to the nodes above 0 only",
		}
	default:
		return "", fmt.Errorf("internal error: no role %q", string(role))
	}
}

// ElectStepRole returns the role of a daemon of a further job step of this name, which is never the
// head. A launcher that has no steps is a [launcher.LaunchError]; bringupd local has them.
func ElectStepRole(id launcher.Identity, step string) (DaemonRole, error) {
	if !id.Launcher.Traits().HasSteps && id.Launcher != launcher.LauncherLocal {
		return "", &launcher.LaunchError{
			Problem: fmt.Sprintf("cannot use step %s without Slurm: its daemons find the run by the Slurm job", step),
			Fix:     "remove the key step from the roles of the file, or --sandbox-step",
		}
	}
	return RoleWorker, nil
}
