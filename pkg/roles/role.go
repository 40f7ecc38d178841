// Package roles defines the roles of a run: which program runs on which nodes, and which function
// each daemon has. Its functions are pure; package launcher below it finds out who this daemon is.
package roles

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// DaemonRole is the function of a daemon on its node.
type DaemonRole string

// The roles of daemons. RoleAuto and RoleSandbox are requested, RoleHead and RoleWorker elected.
const (
	RoleAuto    DaemonRole = "auto"    // head on node 0, worker elsewhere
	RoleHead    DaemonRole = "head"    // runs the head's service and the driver
	RoleWorker  DaemonRole = "worker"  // runs the worker's service
	RoleSandbox DaemonRole = "sandbox" // runs only this node's sandbox
)

// SandboxStep is the name of the job step of daemons with [RoleSandbox].
const SandboxStep = "sandbox"

// ElectRole returns the role of the daemon with identity id for the requested role. The head is node
// 0, so all nodes agree without communication. A sandbox without steps is a [launcher.LaunchError].
func ElectRole(id launcher.Identity, requested DaemonRole) (DaemonRole, error) {
	switch {
	case requested == RoleSandbox && !id.Launcher.Traits().HasSteps:
		return RoleSandbox, &launcher.LaunchError{
			Problem: "cannot use --role=sandbox without Slurm: its run is identified by the Slurm job",
			Fix:     "give --sandbox-cmd to the run itself",
		}
	case requested == RoleSandbox:
		return RoleSandbox, nil
	case id.NodeIndex == 0:
		return RoleHead, nil
	default:
		return RoleWorker, nil
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
