package roles

import (
	"errors"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

func TestElect(t *testing.T) {
	for _, tc := range []struct {
		name      string
		by        launcher.Launcher
		node      int
		requested DaemonRole
		want      DaemonRole
		isLaunch  bool // ends in a LaunchError
	}{
		{"node 0 is head", launcher.LauncherSlurm, 0, RoleAuto, RoleHead, false},
		{"another node is worker", launcher.LauncherSlurm, 3, RoleAuto, RoleWorker, false},
		{"sandbox of node 0", launcher.LauncherSlurm, 0, RoleSandbox, RoleSandbox, false},
		{"sandbox of another", launcher.LauncherSlurm, 2, RoleSandbox, RoleSandbox, false},
		{"sandbox without steps", launcher.LauncherPBS, 2, RoleSandbox, RoleSandbox, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			role, err := ElectRole(launcher.Identity{Launcher: tc.by, NodeIndex: tc.node, Size: 4}, tc.requested)
			if _, is := errors.AsType[*launcher.LaunchError](err); role != tc.want || is != tc.isLaunch {
				t.Errorf("got %q, %v; want %q", role, err, tc.want)
			}
		})
	}
	for by, want := range map[launcher.Launcher]DaemonRole{
		launcher.LauncherSlurm: RoleWorker, launcher.LauncherLocal: RoleWorker, launcher.LauncherPBS: "",
	} {
		role, err := ElectStepRole(launcher.Identity{Launcher: by}, "judge")
		if _, is := errors.AsType[*launcher.LaunchError](err); role != want || is != (want == "") {
			t.Errorf("the daemon of a step of %s is %q, %v; want %q", by, role, err, want)
		}
	}
}
