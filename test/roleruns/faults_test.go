package roleruns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/users"
)

// flap closes the port of a process, waits until its endpoint is withdrawn, and opens the port
// again unless it stays closed.
func (j *job) flap(m *model, f fault) time.Time {
	j.t.Helper()
	number := m.find(f.role).firstNumber + f.index
	var facts *startFacts
	name := nameOf(f, m.states[f.role][f.index].generation)
	if !j.until(func() bool { facts = j.facts(name); return facts != nil }) {
		j.t.Fatalf("%s has not started", name)
	}
	at := time.Now()
	j.signal(facts.PID, syscall.SIGUSR2)
	if !j.until(func() bool { return !slices.Contains(j.newestLive().Ready, number) }) {
		j.bad("%s has closed its port and is still ready", name)
	}
	if !f.stays {
		j.signal(facts.PID, syscall.SIGUSR2)
	}
	return at
}

// freeze stops a daemon, which goes on after a while if the fault says so.
func (j *job) freeze(f fault) time.Time {
	j.t.Helper()
	pid, at := j.daemon(f.node), time.Now()
	j.signal(pid, syscall.SIGSTOP)
	switch {
	case f.after == 0:
	case f.isLoss():
		goOn := time.AfterFunc(f.after, func() {
			if j.isOurs(pid) {
				_ = syscall.Kill(pid, syscall.SIGCONT)
			}
		})
		j.t.Cleanup(func() { goOn.Stop() })
	default:
		time.Sleep(f.after)
		j.signal(pid, syscall.SIGCONT)
		time.Sleep(peerTimeout) // in which it must not be lost
	}
	return at
}

// stop stops the run, when there is one.
func (j *job) stop() time.Time {
	j.t.Helper()
	isThere := func() bool { return slices.Contains(j.list(signal.ControlDir), signal.NameJob) }
	if !j.until(isThere) {
		j.t.Fatalf("there is no run: %s", &j.said)
	}
	at := time.Now()
	stop := exec.Command(bringupd, "stop", filepath.Join(j.logs, j.runName))
	if out, err := stop.CombinedOutput(); err != nil && !j.hasEnded() {
		j.t.Fatalf("cannot stop the run: %v: %s", err, out)
	}
	return at
}

// withShare returns the command line by which a program has a small file system of its own for the
// log directory. It ends with the program, and when it is closed here.
func (j *job) withShare(words []string) []string {
	users.Need(j.t.(*testing.T)) // mounting needs root
	if err := os.Mkdir(j.logs, 0o700); err != nil {
		j.t.Fatal(err)
	}
	const mount = `mount -t tmpfs -o mode=0700,size=8m,nr_inodes=3000 none "$1" && shift && exec "$@"`
	return append([]string{"unshare", "--mount", "sh", "-c", mount, "sh", j.logs}, words...)
}

// openShare opens the file system of a run, which only its processes can see.
func (j *job) openShare() {
	j.t.Helper()
	theirs := filepath.Join("/proc", fmt.Sprint(j.cmd.Process.Pid), "root", j.logs)
	isThere := func() bool { _, err := os.Stat(filepath.Join(theirs, j.runName)); return err == nil }
	if !j.until(isThere) {
		j.t.Fatalf("there is no run: %s", &j.said)
	}
	dir, err := os.Open(theirs)
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { _ = dir.Close() })
	j.logs = fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
}

// fill uses up the space of the share of a run, or its names. The returned function ends that.
func (j *job) fill(names bool) (free func()) {
	j.t.Helper()
	dir := filepath.Join(j.logs, ".filled")
	err := os.Mkdir(dir, 0o700)
	path := func(number int) string { return filepath.Join(dir, fmt.Sprint(number)) }
	for number := 0; names && err == nil; number++ {
		err = os.WriteFile(path(number), nil, 0o600)
	}
	for chunk := 1 << 20; !names && chunk > 0 && (err == nil || isFull(err)); chunk /= 16 {
		for err = nil; err == nil; {
			err = appendTo(path(0), chunk)
		}
	}
	if !isFull(err) {
		j.t.Fatalf("cannot fill the share: %v", err)
	}
	return func() {
		if err := os.RemoveAll(dir); err != nil {
			j.t.Fatal(err)
		}
	}
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) }

// appendTo appends zeros to a file.
func appendTo(path string, count int) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, count))
	return errors.Join(err, file.Close())
}
