package roles

import (
	"errors"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

func TestParseRole(t *testing.T) {
	for _, tc := range []struct {
		in   string
		role DaemonRole
		ok   bool
	}{
		{"", RoleAuto, true}, {"auto", RoleAuto, true}, {"head", RoleHead, true}, {"Worker", RoleWorker, true}, {"sandbox", RoleSandbox, true},
		{"master", "", false}, {"head ", "", false},
	} {
		t.Run(tc.in, func(t *testing.T) {
			role, err := ParseRole(tc.in)
			if role != tc.role || (err == nil) != tc.ok {
				t.Errorf("got %q, %v; want %q", role, err, tc.role)
			}
		})
	}
}

func TestElect(t *testing.T) {
	for _, tc := range []struct {
		name   string
		rank   int
		asked  DaemonRole
		role   DaemonRole
		launch bool // ends in a LaunchError
	}{
		{name: "node 0 is head", rank: 0, asked: RoleAuto, role: RoleHead},
		{name: "another rank is worker", rank: 3, asked: RoleAuto, role: RoleWorker},
		{name: "nothing asked", rank: 1, asked: "", role: RoleWorker},
		{name: "head asked of node 0", rank: 0, asked: RoleHead, role: RoleHead},
		{name: "a second head", rank: 1, asked: RoleHead, launch: true},
		{name: "worker asked of a worker", rank: 1, asked: RoleWorker, role: RoleWorker},
		{name: "no head", rank: 0, asked: RoleWorker, launch: true},
		{name: "sandbox of node 0", rank: 0, asked: RoleSandbox, role: RoleSandbox},
		{name: "sandbox of another", rank: 2, asked: RoleSandbox, role: RoleSandbox},
	} {
		t.Run(tc.name, func(t *testing.T) {
			role, err := ElectRole(launcher.Identity{Launcher: launcher.LauncherSlurm, NodeIndex: tc.rank, Size: 4, Host: "n"}, tc.asked)
			var launch *launcher.LaunchError
			if role != tc.role || errors.As(err, &launch) != tc.launch || (err != nil) != tc.launch {
				t.Errorf("got %q, %v; want %q", role, err, tc.role)
			}
		})
	}
	for by, want := range map[launcher.Launcher]DaemonRole{launcher.LauncherSlurm: RoleWorker, launcher.LauncherLocal: RoleWorker, launcher.LauncherPBS: ""} {
		role, err := ElectStepRole(launcher.Identity{Launcher: by}, "judge")
		if _, isLaunch := errors.AsType[*launcher.LaunchError](err); role != want || isLaunch != (want == "") {
			t.Errorf("the daemon of a step of %s is %q, %v; want %q", by, role, err, want)
		}
	}
	if _, err := ElectRole(launcher.Identity{Launcher: launcher.LauncherPBS}, RoleSandbox); err == nil {
		t.Error("a sandbox's daemon is elected without steps")
	}
	if role, err := ElectRole(launcher.Identity{}, "king"); err == nil {
		t.Errorf("an unknown role is elected as %q", role)
	}
}
