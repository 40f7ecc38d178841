package process

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestSilentDaemon verifies that the guard of a daemon that has been stopped ends its children and
// keeps its directories, and that a daemon that runs again can keep none that it starts.
func TestSilentDaemon(t *testing.T) {
	t.Setenv(silenceVariable, "500ms")
	own := filepath.Join(t.TempDir(), "own")
	t.Setenv(ownVariable, own)
	d := daemonOf(t, strays[3])
	guard := d.guarded(t)
	send(t, d.cmd.Process.Pid, unix.SIGSTOP)
	sleepers(t, d.arg, 0)
	if now := d.guarded(t); now != guard {
		t.Errorf("the guard was lost: it is pid %d, and was %d", now, guard)
	}
	send(t, d.cmd.Process.Pid, unix.SIGCONT)
	until(t, "end of the late child", func() (bool, any) {
		said := d.stderr.String()
		return strings.Contains(said, "the late child: killed by SIGKILL"), said
	})
	if err := unix.Access(own, unix.F_OK); err != nil {
		t.Errorf("the directory of a daemon that lives: %v", err)
	}
	io.WriteString(d.word, "close")
	d.word.Close()
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("the daemon: %v", err)
	}
}

// TestSilentWithItsGuard verifies that time in which the guard was stopped too, as by scontrol
// suspend, is no silence.
func TestSilentWithItsGuard(t *testing.T) {
	takesSeconds(t)
	t.Setenv(silenceVariable, "1s")
	d := daemonOf(t, strays[0])
	guard := d.guarded(t)
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGCONT} {
		for _, pid := range []int{guard, d.cmd.Process.Pid} {
			send(t, pid, sig)
		}
		time.Sleep(1500 * time.Millisecond)
	}
	sleepers(t, d.arg, 1)
	send(t, d.cmd.Process.Pid, unix.SIGSTOP)
	sleepers(t, d.arg, 0)
}

// TestSigns verifies when a guard calls a daemon silent: never as long as there are signs, once when
// they end, and again for each child of a daemon that has been silent.
func TestSigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 10 * time.Second
		began := time.Now()
		var mu sync.Mutex
		var kills []time.Duration // guarded by mu
		state := guardState{sessions: make(map[int]familySession)}
		daemon, guard := io.Pipe()
		bye := make(chan bool)
		go func() {
			bye <- state.followDaemon(daemon, func() {
				mu.Lock()
				defer mu.Unlock()
				kills = append(kills, time.Since(began))
			})
		}()
		killed := func() []time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(kills)
		}
		send := func(line string) { io.WriteString(guard, line+"\n"); synctest.Wait() }
		send(addLine(familySession{sid: 7, start: 1}))
		time.Sleep(10 * limit) // nobody has asked
		send(silenceLine(limit))
		for range 100 {
			time.Sleep(limit * 9 / 10)
			send(signLine)
		}
		if len(killed()) > 0 {
			t.Fatalf("a daemon that gives signs was called silent after %v", killed())
		}
		silent := time.Since(began)
		time.Sleep(5 * limit)
		if len(killed()) != 1 || killed()[0] < silent+limit || killed()[0] > silent+limit*12/10 {
			t.Errorf("silent since %v: called so at %v", silent, killed())
		}
		send(signLine)
		send(addLine(familySession{sid: 8, start: 2}))
		if len(killed()) != 2 {
			t.Errorf("another child: called silent at %v", killed())
		}
		guard.Close()
		if <-bye {
			t.Error("a daemon that has died said goodbye")
		}
	})
}
