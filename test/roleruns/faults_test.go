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
	"github.com/bringupd/bringupd/test/jobtest"
	"github.com/bringupd/bringupd/test/users"
)

// flap closes the port of a process, waits until its endpoint is withdrawn, and opens the port
// again unless it stays closed.
func (j *job) flap(m *model, f fault) time.Time {
	j.T.Helper()
	number := m.find(f.role).firstNumber + f.index
	var facts *startFacts
	name := nameOf(f, m.states[f.role][f.index].generation)
	if !j.Until(func() bool { facts = j.facts(name); return facts != nil }) {
		j.T.Fatalf("%s has not started", name)
	}
	at := time.Now()
	j.Signal(facts.PID, syscall.SIGUSR2)
	if !j.Until(func() bool { return !slices.Contains(j.newestLive().Ready, number) }) {
		j.bad("%s has closed its port and is still ready", name)
	}
	if !f.stays {
		j.Signal(facts.PID, syscall.SIGUSR2)
	}
	return at
}

// freeze stops a daemon, which goes on after a while if the fault says so.
func (j *job) freeze(f fault) time.Time {
	j.T.Helper()
	pid, at := j.Daemon(f.node), time.Now()
	j.Signal(pid, syscall.SIGSTOP)
	switch {
	case f.after == 0:
	case f.isLoss():
		goOn := time.AfterFunc(f.after, func() {
			if j.Mark.Has(pid) {
				_ = syscall.Kill(pid, syscall.SIGCONT)
			}
		})
		j.T.Cleanup(func() { goOn.Stop() })
	default:
		time.Sleep(f.after)
		j.Signal(pid, syscall.SIGCONT)
		time.Sleep(peerTimeout) // in which it must not be lost
	}
	return at
}

// stop stops the run, when there is one.
func (j *job) stop() time.Time {
	j.T.Helper()
	isThere := func() bool { return slices.Contains(j.List(signal.ControlDir), signal.NameJob) }
	if !j.Until(isThere) {
		j.T.Fatalf("there is no run: %s", &j.Said)
	}
	at := time.Now()
	stop := exec.Command(jobtest.Bringupd, "stop", filepath.Join(j.Logs, j.Name))
	if out, err := stop.CombinedOutput(); err != nil && !j.HasEnded() {
		j.T.Fatalf("cannot stop the run: %v: %s", err, out)
	}
	return at
}

// withShare returns the command line by which a program has a small file system of its own for the
// log directory. It ends with the program, and when it is closed here.
func (j *job) withShare(words []string) []string {
	users.Need(j.T.(*testing.T)) // mounting needs root
	if err := os.Mkdir(j.Logs, 0o700); err != nil {
		j.T.Fatal(err)
	}
	const mount = `mount -t tmpfs -o mode=0700,size=8m,nr_inodes=3000 none "$1" && shift && exec "$@"`
	return append([]string{"unshare", "--mount", "sh", "-c", mount, "sh", j.Logs}, words...)
}

// openShare opens the file system of a run, which only its processes can see.
func (j *job) openShare() {
	j.T.Helper()
	theirs := filepath.Join("/proc", fmt.Sprint(j.Cmd.Process.Pid), "root", j.Logs)
	isThere := func() bool { _, err := os.Stat(filepath.Join(theirs, j.Name)); return err == nil }
	if !j.Until(isThere) {
		j.T.Fatalf("there is no run: %s", &j.Said)
	}
	dir, err := os.Open(theirs)
	if err != nil {
		j.T.Fatal(err)
	}
	j.T.Cleanup(func() { _ = dir.Close() })
	j.Logs = fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
}

// fill uses up the space of the share of a run, or its names. The returned function ends that.
func (j *job) fill(names bool) (free func()) {
	j.T.Helper()
	dir := filepath.Join(j.Logs, ".filled")
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
		j.T.Fatalf("cannot fill the share: %v", err)
	}
	return func() {
		if err := os.RemoveAll(dir); err != nil {
			j.T.Fatal(err)
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
