//go:build testbed

package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// assertGone fails the test if anything is left of a testbed.
func assertGone(t *testing.T, s *slot) {
	t.Helper()
	unlock, err := lockRoot() // no testbed may be created or removed meanwhile
	must(t, err)
	defer unlock()
	left, err := scan(s.tag, nil)
	must(t, err)
	if len(left) > 0 {
		t.Errorf("processes in namespaces of the bed are left: %v", left)
	}
	if tag := tagIn(s.dir); tag != "" && tag != s.tag {
		return // another testbed has taken the slot, which it found free
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder %s is left: %v", s.dir, err)
	}
	if _, err := net.InterfaceByName(s.link()); err == nil {
		t.Errorf("the link %s is left", s.link())
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(mounts), s.dir) || strings.Contains(string(mounts), s.tag) {
		t.Errorf("mounts of the bed reached the host:\n%s", mounts)
	}
}

// tagIn returns the tag of the testbed in the folder, or "" if there is none.
func tagIn(dir string) string {
	tag, err := os.ReadFile(filepath.Join(dir, "tag"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(tag))
}

// ownerVariable, if set, makes the test binary a process that owns a testbed until it is killed.
// Its value is the kind of the shared file system.
const ownerVariable = "BRINGUPD_TESTBED_OWNER"

func ownABed() int {
	b, err := Start(context.Background(), Config{Nodes: 1, Share: Share(os.Getenv(ownerVariable))})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(b.slot.number, b.slot.tag)
	select {}
}

// TestKilledOwner checks that a testbed disappears after its owner, even if Close is never called.
func TestKilledOwner(t *testing.T) {
	for _, share := range []Share{SSHFS, MooseFS} {
		t.Run(string(share), func(t *testing.T) { testKilledOwner(t, share) })
	}
}

func testKilledOwner(t *testing.T, share Share) {
	t.Run("by the watchdog", func(t *testing.T) {
		owner, s := startOwner(t, share)
		kill(t, owner)
		eventually(t, "the watchdog to remove the bed", func() (bool, string) {
			tag := tagIn(s.dir)
			return tag != s.tag, tag
		})
		assertGone(t, s)
	})
	t.Run("by the next sweep where the watchdog was killed too", func(t *testing.T) {
		owner, s := startOwner(t, share)
		must(t, signalAll([]Process{{PID: watchdogOf(t, owner.Process.Pid)}}, syscall.SIGKILL))
		kill(t, owner)
		must(t, Sweep(t.Context()))
		assertGone(t, s)
	})
}

// startOwner starts a process that owns a testbed with the given kind of shared file system.
func startOwner(t *testing.T, share Share) (*exec.Cmd, *slot) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	owner := exec.Command(self)
	owner.Env = append(os.Environ(), ownerVariable+"="+string(share))
	out, err := owner.StdoutPipe()
	must(t, err)
	must(t, owner.Start())
	s := new(slot)
	if _, err := fmt.Fscan(out, &s.number, &s.tag); err != nil {
		t.Fatalf("cannot read which bed the owner has: %v", err)
	}
	s.dir = filepath.Join(root, fmt.Sprint(s.number))
	if members, err := scan(s.tag, nil); err != nil || len(members) == 0 {
		t.Errorf("the bed has the processes %v, %v, want some", members, err)
	}
	return owner, s
}

func kill(t *testing.T, owner *exec.Cmd) {
	t.Helper()
	must(t, owner.Process.Kill())
	owner.Wait() // the error only reports the kill
}

func watchdogOf(t *testing.T, owner int) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	must(t, err)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok && p.PPID == owner &&
			slices.Contains(p.Args, "testbed-watchdog") {
			return pid
		}
	}
	t.Fatalf("process %d has no watchdog", owner)
	return 0
}

// TestStuckShare checks that faults and Close do not wait for an unresponsive shared file system.
func TestStuckShare(t *testing.T) {
	for _, share := range []Share{SSHFS, MooseFS} {
		t.Run(string(share), func(t *testing.T) { testStuckShare(t, share) })
	}
}

func testStuckShare(t *testing.T, share Share) {
	b := start(t, Config{Nodes: 1, Share: share})
	must(t, b.LinkDown(t.Context(), 0))
	stuck := b.OnNode(t.Context(), 0, "ls")
	must(t, stuck.Start())
	eventually(t, "ls to be on the node", func() (bool, string) {
		processes, err := b.Processes(0)
		must(t, err)
		return slices.ContainsFunc(processes, func(p Process) bool { return !p.Infra }),
			fmt.Sprint(processes)
	})
	must(t, b.HangNode(t.Context(), 0))
	must(t, b.Close())
	stuck.Wait() // the error only reports the kill
	assertGone(t, b.slot)
}

// TestStartCancelled checks that a failed Start leaves nothing behind, whichever step failed.
func TestStartCancelled(t *testing.T) {
	for _, tc := range []struct {
		share Share
		after time.Duration
	}{
		{SSHFS, 0},
		{SSHFS, 40 * time.Millisecond},
		{SSHFS, 150 * time.Millisecond},
		{MooseFS, 1200 * time.Millisecond}, // its servers are running
		{MooseFS, 2300 * time.Millisecond}, // it is mounted on the host
	} {
		t.Run(fmt.Sprint(tc.share, " after ", tc.after), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), tc.after)
			defer cancel()
			before := tags(t)
			b, err := Start(ctx, Config{Nodes: 2, Share: tc.share})
			if err == nil {
				must(t, b.Close())
				t.Logf("the bed was faster than %v", tc.after)
			}
			old := func(tag string) bool { return slices.Contains(before, tag) }
			if left := slices.DeleteFunc(tags(t), old); len(left) > 0 {
				t.Errorf("the beds %v are left", left)
			}
		})
	}
}

// tags returns the tags of all testbeds that this process owns.
func tags(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "*", "tag"))
	must(t, err)
	var own []string
	for _, path := range paths {
		if tag := tagIn(filepath.Dir(path)); strings.Contains(tag,
			fmt.Sprintf("-%d-", os.Getpid())) {
			own = append(own, tag)
		}
	}
	return own
}
