package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// nobody is a user that has no processes of its own.
const nobody = 65534

// hidePlace is what the first process of a name space of processes is run for: it mounts /proc anew, with its first
// argument as the option, and runs the helper "hidden" with the rest as a user who is not to see everything. It stays
// a stranger to that.
func hidePlace() int {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		fmt.Fprintln(os.Stderr, "cannot keep mounts apart:", err)
		return 1
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "cannot mount /proc:", err)
		return 1
	}
	inner := exec.Command("/proc/self/exe", os.Args[2:]...)
	inner.Env = childEnv(helperVariable + "=hidden")
	inner.Stdout, inner.Stderr = os.Stdout, os.Stderr
	inner.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := inner.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		if line, _ := os.ReadFile(path); bytes.HasPrefix(line, []byte("sleep\x00")) {
			fmt.Fprintln(os.Stderr, "left:", string(line))
			return 1
		}
	}
	return 0
}

// hiddenLife is a daemon, without privileges, whose child leaves strays behind.
func hiddenLife() int {
	_, err := os.ReadFile("/proc/1/stat")
	if word := os.Args[1]; word == "seen" && !os.IsPermission(err) || word == "unseen" && !os.IsNotExist(err) {
		fmt.Fprintf(os.Stderr, "strangers are not %s: %v\n", word, err)
		return 1
	}
	s, err := NewSupervisor(Config{Notice: func(err error) { fmt.Fprintln(os.Stderr, "notice:", err) }})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c, err := s.Start(context.Background(), shell("setsid sleep 300 & sleep 301 & exit 0"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	<-c.Ended()
	for deadline := time.Now().Add(ceiling); len(c.claim().roots) < 2; s.count() {
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, "no census notes the session of a stray")
			return 1
		}
	}
	if exit := c.Stop(context.Background(), 3*time.Second, unix.SIGTERM); exit.Err != nil || exit.Code != 0 {
		fmt.Fprintf(os.Stderr, "%#v, want code 0\n", exit)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), ceiling)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// Where /proc hides strangers, they are none of ours, and ours are found nonetheless.
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
