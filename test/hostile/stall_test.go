package hostile

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStallUnread checks that a process which waits for a call that was not taken can be killed.
func TestStallUnread(t *testing.T) {
	a, b, _ := two(t, Knobs{})
	ok(t, a.Stall(Unread))
	stat := caller(t, a.path("file"))
	put(t, b.path("file"), "words") // the other mount works
	ok(t, stat.Process.Kill())
	_ = stat.Wait()
	patient := caller(t, a.path("file"))
	ok(t, a.Release())
	ok(t, patient.Wait())
	has(t, a.path("file"), "words")
}

// TestStallHeld checks that only the answer ends a process which waits for a call that was taken.
func TestStallHeld(t *testing.T) {
	a, b, _ := two(t, Knobs{})
	put(t, b.path("file"), "words")
	ok(t, a.Stall(Held))
	stat := caller(t, a.path("file"))
	until(t, "the call has been taken", func() bool {
		taken, err := a.Taken()
		ok(t, err)
		return taken == 1
	})
	ok(t, stat.Process.Kill())
	until(t, "it waits where no signal reaches it", func() bool {
		return stateOf(stat.Process.Pid) == "D"
	})
	has(t, b.path("file"), "words")
	ended := make(chan error, 1)
	go func() { ended <- stat.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("it has ended: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	ok(t, a.Release())
	if err := <-ended; err == nil ||
		stat.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended by %v, want by the KILL", err)
	}
	has(t, a.path("file"), "words")
}

// TestStallAndOpenFiles checks that a process which ends with a file open waits for the close on a
// stalled mount, except if closes are not reported (NoFlush).
func TestStallAndOpenFiles(t *testing.T) {
	for _, noFlush := range []bool{false, true} {
		a, _, _ := two(t, Knobs{NoFlush: noFlush})
		put(t, a.path("first"), "") // the kernel learns NoFlush from the first close
		holder := exec.Command("sh", "-c", "exec 3>"+a.path("file")+"; echo open; read _")
		said, err := holder.StdoutPipe()
		ok(t, err)
		stdin, err := holder.StdinPipe()
		ok(t, err)
		defer stdin.Close()
		ok(t, holder.Start())
		_, err = bufio.NewReader(said).ReadString('\n')
		ok(t, err)
		ok(t, a.Stall(Unread))
		ok(t, holder.Process.Kill())
		if !noFlush {
			until(t, "it waits", func() bool { return stateOf(holder.Process.Pid) == "D" })
			ok(t, a.Release())
		}
		_ = holder.Wait()
		ok(t, a.Release())
	}
}

func stateOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// TestCloseOfWhatIsStalled checks that a stalled mount can be closed.
func TestCloseOfWhatIsStalled(t *testing.T) {
	for _, kind := range []StallKind{Unread, Held} {
		a, _, _ := two(t, Knobs{})
		ok(t, a.Stall(kind))
		stat := caller(t, a.path("file"))
		begin := time.Now()
		ok(t, a.Close())
		ok(t, a.Close())
		if err := stat.Wait(); err == nil {
			t.Error("a call on a mount that is gone went well")
		}
		if _, there := connection(a.at); there || time.Since(begin) > closeTime {
			t.Errorf("after %s the mount is there: %t", time.Since(begin), there)
		}
	}
}

// TestOrphan checks that a killed process leaves neither its mount nor the server behind.
func TestOrphan(t *testing.T) {
	for _, kind := range []StallKind{Unread, Held} {
		at := filepath.Join(t.TempDir(), "mount")
		ok(t, os.Mkdir(at, 0o700))
		helper := exec.CommandContext(t.Context(), os.Args[0])
		helper.Env = append(os.Environ(), helperVariable+"="+program.path+":"+at+":"+string(kind))
		helper.Stderr = os.Stderr
		said, err := helper.StdoutPipe()
		ok(t, err)
		ok(t, helper.Start())
		line, err := bufio.NewReader(said).ReadString('\n')
		ok(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		ok(t, err)
		stat := caller(t, filepath.Join(at, "file"))
		ok(t, helper.Process.Kill())
		_ = helper.Wait()
		_ = stat.Wait()
		until(t, "mount and server are gone", func() bool {
			_, there := connection(at)
			state := stateOf(pid)
			return !there && (state == "" || state == "Z")
		})
	}
}
