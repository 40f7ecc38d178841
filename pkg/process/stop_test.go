package process

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

func TestStopEndsAll(t *testing.T) {
	s := newSupervisor(t)
	for _, tc := range append(strays, stray{"known by nothing but its parent", `env -i setsid sleep %[1]s & wait`, 1}) {
		for _, grace := range []time.Duration{0, 200 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, grace %v", tc.name, grace), func(t *testing.T) {
				t.Parallel()
				arg := nap(t)
				c := start(t, s, shell(fmt.Sprintf(tc.script, arg)))
				sleepers(t, arg, tc.sleepers)
				if exit := c.Stop(t.Context(), grace, unix.SIGTERM); exit.Err != nil {
					t.Errorf("%#v", exit)
				}
				if left := naps(t, arg); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
				if !ctxutil.AwaitDoneFor(c.Done(), ceiling) {
					t.Error("not done")
				}
			})
		}
	}
}

// words returns the last lines without the shell's own messages.
func words(c *Child) string {
	lines := slices.DeleteFunc(c.LastLines(), func(line string) bool { return line == "Terminated" })
	return strings.Join(lines, " ")
}

func ready(t *testing.T, c *Child) {
	t.Helper()
	until(t, "ready", func() (bool, any) {
		lines := c.LastLines()
		return len(lines) > 0 && lines[0] == "ready", lines
	})
}

func TestStopLadder(t *testing.T) {
	takesSeconds(t)
	s := newSupervisor(t)
	for _, tc := range []struct {
		name   string
		script string
		grace  time.Duration
		first  unix.Signal
		want   string
		lines  string
	}{
		{"takes the signal that is named", `trap 'echo int; exit 5' INT; echo ready; while :; do sleep 0.01; done`,
			time.Hour, unix.SIGINT, "exit code 5", "ready int"},
		{"stopped when asked", `trap 'echo woke; exit 0' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done`,
			time.Hour, unix.SIGTERM, "exit code 0", "ready woke"},
		{"its helper uses the grace after it has gone",
			`sh -c 'trap "sleep 0.3; echo saved; exit" TERM; echo ready; while :; do sleep 0.01; done' & wait`,
			time.Hour, unix.SIGTERM, "killed by SIGTERM", "ready saved"},
		{"its daemon is asked too, after it has gone",
			`setsid sh -c 'trap "echo saved; exit" TERM; echo ready; while :; do sleep 0.01; done' & wait`,
			time.Hour, unix.SIGTERM, "killed by SIGTERM", "ready saved"},
		{"what its helper starts in answer is left in peace",
			`sh -c 'trap "sleep 0.3 && echo copied; exit" TERM; echo ready; while :; do sleep 0.01; done' & wait`,
			time.Hour, unix.SIGTERM, "killed by SIGTERM", "ready copied"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := start(t, s, shell(tc.script))
			ready(t, c)
			exit := c.Stop(t.Context(), tc.grace, tc.first)
			if exit.String() != tc.want || !exit.Requested || exit.Err != nil {
				t.Errorf("%v (%#v), want %s, asked", exit, exit, tc.want)
			}
			if lines := words(c); lines != tc.lines {
				t.Errorf("lines %q, want %q", lines, tc.lines)
			}
		})
	}
}

// TestStopListensThroughTheGrace verifies that a process that saves its work after the child has
// ended can print until its own deadline.
func TestStopListensThroughTheGrace(t *testing.T) {
	takesSeconds(t)
	s := newSupervisor(t)
	s.timeouts.outputDrain = 10 * time.Millisecond
	c := start(t, s, shell(`sh -c 'trap "sleep 0.5; echo saving; sleep 0.5; echo saved; exit" TERM; echo ready
while :; do sleep 0.01; done' & wait`))
	ready(t, c)
	c.Stop(t.Context(), time.Hour, unix.SIGTERM)
	if got := words(c); got != "ready saving saved" {
		t.Errorf("%q", got)
	}
}

// TestStopAsksOnce verifies that a process that received the signal with its group does not receive
// it again after the child has ended.
func TestStopAsksOnce(t *testing.T) {
	s := newSupervisor(t)
	c := start(t, s, shell(`sh -c 'n=0; trap "n=\$((n+1))" TERM; echo ready; i=0
while [ $i -lt 50 ]; do sleep 0.01; i=$((i+1)); done; echo $n' & wait`))
	ready(t, c)
	time.Sleep(30 * time.Millisecond) // started well before the signal: process start times have a resolution of 10 ms
	c.Stop(t.Context(), time.Hour, unix.SIGTERM)
	if lines := words(c); lines != "ready 1" {
		t.Errorf("%q, want that it was asked once", lines)
	}
}

func TestStopWithImpatience(t *testing.T) {
	s := newSupervisor(t)
	c := start(t, s, shell(`trap '' TERM; echo ready; while :; do sleep 0.01; done`))
	ready(t, c)
	patient := make(chan Exit)
	go func() { patient <- c.Stop(context.Background(), time.Hour, unix.SIGTERM) }()
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		time.Sleep(50 * time.Millisecond)
		cancel(errors.New("enough"))
	}()
	for _, exit := range []Exit{c.Stop(ctx, time.Hour, unix.SIGTERM), <-patient,
		c.Stop(t.Context(), time.Hour, unix.SIGTERM)} {
		if exit.Signal != unix.SIGKILL || !exit.Requested {
			t.Errorf("%#v, want SIGKILL, asked", exit)
		}
	}
}

// TestStopLeavesTheNextJob covers a driver whose last action is to submit the next job, with its
// environment; that job may start on this node at once.
func TestStopLeavesTheNextJob(t *testing.T) {
	takesSeconds(t)
	s := newSupervisor(t)
	mine, next := nap(t), nap(t)
	spec := shell(fmt.Sprintf(`(SLURM_JOB_ID=18 setsid sleep %s &); (setsid sleep %s &); exit 0`, next, mine))
	spec.Env = append(spec.Env, "SLURM_JOB_ID=17")
	c := start(t, s, spec)
	sleepers(t, mine, 1)
	sleepers(t, next, 1)
	finished(t, c)
	c.Stop(t.Context(), 0, unix.SIGKILL)
	if left := naps(t, mine); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	sleepers(t, next, 1)
}

// TestSignalExactly verifies that a process with the PID of an ended one does not receive a signal
// meant for that one.
func TestSignalExactly(t *testing.T) {
	stranger := exec.Command("sleep", nap(t))
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := readStat(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	gone := p
	gone.start--
	if err := errors.Join(signalProcess(gone, unix.SIGKILL), signalProcess(p, unix.SIGTERM)); err != nil {
		t.Error(err)
	}
	_ = stranger.Wait()
	status := stranger.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signal() != unix.SIGTERM {
		t.Errorf("it ended by %v, want the signal for itself", status.Signal())
	}
	if err := signalProcess(p, unix.SIGKILL); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}

func TestCloseEndsWhatIsLeft(t *testing.T) {
	takesSeconds(t)
	s := newSupervisor(t)
	arg := nap(t)
	running := start(t, s, shell(fmt.Sprintf(strays[3].script, arg)))
	left := start(t, s, shell(fmt.Sprintf(strays[4].script, arg)))
	sleepers(t, arg, strays[3].sleepers+strays[4].sleepers)
	finished(t, left)
	closeSupervisor(t, s)
	if still := naps(t, arg); len(still) > 0 {
		t.Errorf("left: %v", still)
	}
	if still := guards(t, s.markPrefix); len(still) > 0 {
		t.Errorf("guards left: %v", still)
	}
	if exit := running.Exit(); exit.Signal != unix.SIGKILL {
		t.Errorf("%#v, want SIGKILL", exit)
	}
	if _, err := s.Start(t.Context(), shell("exit 0")); err == nil {
		t.Error("a child started after Close")
	}
}

func TestCloseWithoutChildren(t *testing.T) {
	closeSupervisor(t, newSupervisor(t))
}
