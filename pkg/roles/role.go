// Package roles defines the roles of a run: which program runs on which nodes, and which function
// each daemon has. Its functions are pure; package launcher below it finds out who this daemon is.
package roles

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// DaemonRole is the function of a daemon on its node.
type DaemonRole string

// The roles of daemons.
const (
	RoleHead   DaemonRole = "head"   // leads the run, on node 0
	RoleWorker DaemonRole = "worker" // follows the head
)

// ElectRole returns the role of the daemon with identity id. The head is node 0, so all nodes agree
// without communication.
func ElectRole(id launcher.Identity) DaemonRole {
	if id.NodeIndex == 0 {
		return RoleHead
	}
	return RoleWorker
}

// ElectStepRole returns the role of a daemon of a further job step of this name, which is never the
// head. A launcher that has no steps is a [launcher.LaunchError]; bringupd local has them.
func ElectStepRole(id launcher.Identity, step string) (DaemonRole, error) {
	if !id.Launcher.Traits().HasSteps && id.Launcher != launcher.LauncherLocal {
		return "", &launcher.LaunchError{
			Problem: fmt.Sprintf("cannot use step %s without Slurm: its daemons find the run by the Slurm job", step),
			Fix:     "remove the key step from the roles of the file",
		}
	}
	return RoleWorker, nil
}
