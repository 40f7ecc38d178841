package roles

import (
	"errors"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

func TestElect(t *testing.T) {
	for node, want := range map[int]DaemonRole{0: RoleHead, 3: RoleWorker} {
		if role := ElectRole(launcher.Identity{NodeIndex: node, Size: 4}); role != want {
			t.Errorf("node %d is %q, want %q", node, role, want)
		}
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
