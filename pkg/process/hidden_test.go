package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// nobody is a user without processes of its own.
const nobody = 65534

// hidePlace is the first process of a PID namespace: it mounts /proc again, with its first argument
// as the option, and runs the helper "hidden" with the other arguments as a user that cannot see
// all processes. It belongs to another user for that helper.
func hidePlace() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot keep mounts apart: %v", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, os.Args[1]); err != nil {
		return fmt.Errorf("cannot mount /proc: %v", err)
	}
	if err := setUID(); err != nil {
		return err
	}
	inner := exec.Command("/proc/self/exe", os.Args[2:]...)
	inner.Env = childEnv(helperVariable + "=hidden")
	inner.Stdout, inner.Stderr = os.Stdout, os.Stderr
	inner.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := inner.Run(); err != nil {
		return err
	}
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		if line, _ := os.ReadFile(path); bytes.HasPrefix(line, []byte("sleep\x00")) {
			return fmt.Errorf("left: %s", line)
		}
	}
	return nil
}

// privileged is a set-uid setpriv, which runs another program as the given user.
const privileged = "/mnt/setpriv"

// setUID creates the set-uid program, on a mount of its own.
func setUID() error {
	if err := unix.Mount("tmpfs", filepath.Dir(privileged), "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("cannot mount a tmpfs: %v", err)
	}
	plain, err := exec.LookPath(filepath.Base(privileged))
	if err != nil {
		return err
	}
	program, err := os.ReadFile(plain)
	if err != nil {
		return err
	}
	if err := os.WriteFile(privileged, program, 0o755); err != nil {
		return err
	}
	return os.Chmod(privileged, 0o755|os.ModeSetuid)
}

// hiddenLife is a daemon without privileges whose children leave strays behind.
func hiddenLife() error {
	_, err := os.ReadFile("/proc/1/stat")
	if word := os.Args[1]; word == "seen" && !os.IsPermission(err) || word == "unseen" && !os.IsNotExist(err) {
		return fmt.Errorf("strangers are not %s: %v", word, err)
	}
	s, err := NewSupervisor(launcher.JobVariables())
	if err != nil {
		return err
	}
	// The second child is itself hidden until it has dropped its privileges; its stray is recognised
	// by the child that is visible then.
	drops := Spec{Name: "set-uid", Env: childEnv(), Argv: []string{privileged, "sh", "-p", "-c",
		fmt.Sprintf("sleep 0.2; exec env -i setpriv --reuid=%d sh -c 'setsid sleep 302 & exec sleep 303'", nobody)}}
	err = errors.Join(endsAll(s, shell("setsid sleep 300 & sleep 301 & exit 0"), 0),
		endsAll(s, drops, 128+int(unix.SIGTERM)))
	ctx, cancel := context.WithTimeout(context.Background(), ceiling)
	defer cancel()
	return errors.Join(err, s.Close(ctx))
}

// endsAll starts a child, waits until its stray is found, and ends both.
func endsAll(s *Supervisor, spec Spec, status int) error {
	started, err := s.Start(context.Background(), spec)
	if err != nil {
		return err
	}
	c := started.(*Child)
	if c.hidden {
		c.start -= 5 // simulates the time that a fork takes
	}
	if status == 0 {
		<-c.Ended()
	}
	deadline := time.Now().Add(ceiling)
	for !c.OwnsProcess(strayOf(c)) && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	found := c.OwnsProcess(strayOf(c))
	exit := c.Stop(context.Background(), 3*time.Second, unix.SIGTERM)
	if exit.Err != nil || exit.ShellStatus() != status || !found {
		return fmt.Errorf("%s: %#v, stray found: %v; want status %d and the stray", spec.Name, exit, found, status)
	}
	return nil
}

// strayOf returns the sleeping process that has left the session of a child; 0 if there is none yet.
func strayOf(c *Child) int {
	all, _ := c.supervisor.scanner.scanProcesses()
	for _, p := range all {
		if p.name == "sleep" && !p.dead && p.pid == p.sid && p.pid != c.PID() {
			return p.pid
		}
	}
	return 0
}

// TestHiddenStrangers verifies that, if /proc hides other users' processes, none of them is taken
// for one of this daemon, and its own are found nevertheless.
func TestHiddenStrangers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to mount /proc takes root")
	}
	for _, tc := range []struct{ option, strangers string }{
		{"hidepid=1", "seen"},
		{"hidepid=2", "unseen"},
	} {
		t.Run(tc.option, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*ceiling)
			defer cancel()
			first := exec.CommandContext(ctx, "/proc/self/exe", tc.option, tc.strangers)
			first.Env = childEnv(helperVariable + "=hide")
			first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
			if said, err := first.CombinedOutput(); err != nil || len(said) > 0 {
				t.Errorf("%v: %s", err, said)
			}
		})
	}
}
