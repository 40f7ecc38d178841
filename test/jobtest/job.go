package jobtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	// Ceiling limits every wait. It is far longer than any wait takes.
	Ceiling = time.Minute
	pause   = 5 * time.Millisecond // between two checks
)

// Job is a run of bringupd on this machine.
type Job struct {
	T    testing.TB
	Mark Mark
	Dir  string // of the test
	Logs string // the log directory
	Name string // of the run directory
	Size int    // number of nodes

	Cmd  *exec.Cmd
	Said bytes.Buffer // its standard output and error; may be read after the end
	end  chan struct{}
}

// Start starts a command of the job, with further variables. When the test ends, it is killed, and
// the test fails if a process of the job is left.
func (j *Job) Start(env []string, words ...string) {
	j.T.Helper()
	// A daemon that is killed leaves its private TMPDIR behind. It contains sockets, so its path must
	// be short.
	temp, err := os.MkdirTemp("", "j-")
	if err != nil {
		j.T.Fatal(err)
	}
	j.T.Cleanup(func() { _ = os.RemoveAll(temp) })
	j.end = make(chan struct{})
	j.Cmd = exec.Command(words[0], words[1:]...)
	j.Cmd.Env = append(append(append(os.Environ(), string(j.Mark), "TMPDIR="+temp), Environ()...), env...)
	j.Cmd.Stdout, j.Cmd.Stderr = &j.Said, &j.Said
	j.Cmd.WaitDelay = Ceiling / 4
	j.Cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if the tests time out
	if err := j.Cmd.Start(); err != nil {
		j.T.Fatal(err)
	}
	go func() {
		_ = j.Cmd.Wait()
		close(j.end)
	}()
	j.T.Cleanup(func() {
		_ = j.Cmd.Process.Kill()
		<-j.end
		if left := j.Left(); len(left) > 0 {
			j.T.Errorf("still running: %v", left)
			j.Mark.Kill()
		}
	})
}

// Left waits until no process of the job runs, and returns those that remain.
func (j *Job) Left() []Process { return j.Mark.Left(Ceiling / 4) }

// HasEnded reports whether the command has ended.
func (j *Job) HasEnded() bool {
	select {
	case <-j.end:
		return true
	default:
		return false
	}
}

// Until waits for a condition, and reports whether it holds before the job ends or the time is up.
func (j *Job) Until(holds func() bool) bool {
	for deadline := time.Now().Add(Ceiling); time.Now().Before(deadline); time.Sleep(pause) {
		if holds() {
			return true
		}
		if j.HasEnded() {
			return holds()
		}
	}
	return false
}

// Need waits for a condition, and fails the test if it does not hold before the job ends or the time
// is up.
func (j *Job) Need(what string, holds func() bool) {
	j.T.Helper()
	if !j.Until(holds) {
		j.Stop()
		j.T.Fatalf("%s is not there; running: %v\n%s", what, j.Mark.Processes(), &j.Said)
	}
}

// NeedFile waits for a file.
func (j *Job) NeedFile(path string) {
	j.T.Helper()
	j.Need(path, func() bool { _, err := os.Stat(path); return err == nil })
}

// Stop kills the command and waits for its end.
func (j *Job) Stop() {
	_ = j.Cmd.Process.Kill()
	<-j.end
}

// AwaitEnd waits for the end of the command, and returns its exit code. The test fails if it does
// not end within the given time.
func (j *Job) AwaitEnd(within time.Duration) int {
	j.T.Helper()
	select {
	case <-j.end:
		return ExitCode(j.Cmd.ProcessState)
	case <-time.After(within):
		running := j.Mark.Processes()
		j.Stop()
		j.T.Errorf("the job has not ended after %s; running: %v\n%s", within, running, &j.Said)
		return -1
	}
}

// Path returns a path in the run directory.
func (j *Job) Path(names ...string) string {
	return filepath.Join(append([]string{j.Logs, j.Name}, names...)...)
}

// List returns the names in a directory of the run directory.
func (j *Job) List(dir string) (names []string) {
	entries, _ := os.ReadDir(j.Path(dir))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// Read reads a record of the run directory, and reports whether it is there.
func (j *Job) Read(rec any, names ...string) bool {
	data, err := os.ReadFile(j.Path(names...))
	return err == nil && json.Unmarshal(data, rec) == nil
}

// Daemon returns the pid of a node's daemon, or 0.
func (j *Job) Daemon(node int) int {
	if node == 0 {
		var head record.Job
		j.Read(&head, signal.ControlDir, signal.NameJob)
		return head.PID
	}
	var joined record.Joined
	j.Read(&joined, signal.NodesDir, signal.NodeName(node, j.Size, record.StateJoined))
	return joined.PID
}

// Write writes a file in the directory of the test.
func (j *Job) Write(name, text string) {
	j.T.Helper()
	if err := os.WriteFile(filepath.Join(j.Dir, name), []byte(text), 0o600); err != nil {
		j.T.Fatal(err)
	}
}

// Signal sends a signal to a process of the job.
func (j *Job) Signal(pid int, sig syscall.Signal) {
	j.T.Helper()
	if pid <= 1 {
		j.T.Fatalf("cannot send %v: there is no such process", sig)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		j.T.Fatal(fmt.Errorf("cannot send %v to %d: %w", sig, pid, err))
	}
}

// isInstanceMark matches the names by which a node publishes the state of an instance of a role.
var isInstanceMark = regexp.MustCompile(`^\d+\.i\d+\.g\d+\.(done|ready|stopped)$`)

// MayBeEmpty reports whether the record of a name in a run directory may be empty: its name carries
// the state. Some of these records have content, except on a full share.
func MayBeEmpty(name string) bool {
	if isInstanceMark.MatchString(name) || name == signal.EndName(1) {
		return true
	}
	if _, state, isNode := strings.Cut(name, "."); isNode {
		return strings.HasPrefix(state, string(record.StateChecked)) ||
			record.State(state) == record.StateSandboxReady ||
			record.State(state) == record.StateServiceUp
	}
	return name == signal.NameGateOpen || name == signal.NameOrderlyEnd ||
		name == signal.NameHeadFinished || name == signal.NameStop
}
