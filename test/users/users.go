// Package users runs programs as two ordinary users of a machine: the user of a job, and another
// user who shares the machine and a group with that user. Tests of what other users can access need
// both, and root to change to them.
package users

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// User is an ordinary user with no other processes on the machine. It needs no account.
type User struct {
	ID    uint32 // user id, and id of the user's own group
	Group uint32 // a group that both users belong to
}

// The user ids are above those that useradd assigns, and below the subordinate ids of /etc/subuid.
const (
	jobID      = 64101
	strangerID = 64102
	teamID     = 64100
)

// Job is the user whose job is under test. Stranger is any other user of the machine.
var (
	Job      = User{ID: jobID, Group: teamID}
	Stranger = User{ID: strangerID, Group: teamID}
)

// Need ends a test that cannot run because this process is not root. If CI=true, the test fails;
// otherwise it is skipped.
func Need(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("cannot run programs as two users: run the tests as root")
	}
	t.Skip("cannot run programs as two users: run the tests as root")
}

// Attributes returns the attributes with which a command runs as the user, in its own process
// group.
func (u User) Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Setpgid:    true,
		Pdeathsig:  syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: u.ID, Gid: u.ID, Groups: []uint32{u.Group}},
	}
}

// Command returns a command that runs as the user, in dir, with an environment that contains only
// PATH, HOME and TMPDIR; the latter two are dir. ctx ends it.
func (u User) Command(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir}
	cmd.SysProcAttr = u.Attributes()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// Dir makes a directory that belongs to the user, with mode 0700, and is removed when the test
// ends. All users can access its parent, which t.TempDir does not guarantee. Its path is short
// enough for a socket.
func (u User) Dir(t testing.TB) string {
	t.Helper()
	parent, err := os.MkdirTemp("/tmp", "users-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	dir := filepath.Join(parent, "own")
	for _, err := range []error{os.Chmod(parent, 0o755), os.Mkdir(dir, 0o700),
		os.Chown(dir, int(u.ID), int(u.ID))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Project makes a project directory: it belongs to root and the common group, all members of the
// group can write to it, and it has no sticky bit (mode 2775).
func Project(t testing.TB) string {
	t.Helper()
	dir := Job.Dir(t)
	for _, err := range []error{os.Chown(dir, 0, teamID), os.Chmod(dir, 0o775|os.ModeSetgid)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Public returns the path of a copy of a program that all users can execute. Test binaries are in
// directories that only the user who built them can enter.
func Public(t testing.TB, program string) string {
	t.Helper()
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	dir := Job.Dir(t)
	path := filepath.Join(dir, filepath.Base(program))
	for _, err := range []error{os.Chmod(dir, 0o755), os.WriteFile(path, data, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}
