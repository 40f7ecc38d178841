package worlds

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	ceiling = 60 * time.Second     // limits every wait; far longer than any wait takes
	step    = 2 * time.Millisecond // pause between two checks
)

// job is a running world.
type job struct {
	t     *testing.T
	dir   string // rendezvous directory of the ranks
	logs  string
	cmd   *exec.Cmd
	said  bytes.Buffer // its standard output and error
	ended chan struct{}
}

// begin starts a world with the given nodes and ranks per node, which run a program.
func begin(t *testing.T, nodes, perNode int, program ...string) *job {
	t.Helper()
	dir := t.TempDir()
	args := []string{"local", "--nodes=" + strconv.Itoa(nodes),
		"--ranks-per-node=" + strconv.Itoa(perNode), "--oversubscribe",
		"--job-id=world", "--log-dir=" + filepath.Join(dir, "logs"), "--"}
	return run(t, dir, nil, append(args, program...)...)
}

// run starts bringupd with variables and arguments. dir is the job's directory.
func run(t *testing.T, dir string, env []string, args ...string) *job {
	t.Helper()
	// Use a private TMPDIR: a node that is killed completely leaves its private directory behind. It
	// contains sockets, so its path must be short.
	temp, err := os.MkdirTemp("", "w-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	j := &job{t: t, dir: dir, logs: filepath.Join(dir, "logs"), ended: make(chan struct{})}
	j.cmd = exec.Command(bringupd, args...)
	j.cmd.Env = append(append(os.Environ(), j.mark(), "TMPDIR="+temp,
		"BRINGUPD_TEST_PROGRAM="+bringupd, "GORACE=exitcode=199 atexit_sleep_ms=0"), env...)
	j.cmd.Stdout, j.cmd.Stderr = &j.said, &j.said
	j.cmd.WaitDelay = ceiling / 4
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if the tests time out
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = j.cmd.Wait()
		close(j.ended)
	}()
	t.Cleanup(func() {
		_ = j.cmd.Process.Kill()
		<-j.ended
		if left := j.left(); len(left) > 0 {
			t.Errorf("still running: %s", strings.Join(left, "; "))
		}
	})
	return j
}

// beginRing starts a world whose ranks are connected.
func beginRing(t *testing.T) *job {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return begin(t, nodes, perNode, self)
}

// mark returns a variable that identifies all processes of the job.
func (j *job) mark() string { return ringVariable + "=" + j.dir }

// processes returns the running processes that have the mark in their environment.
func (j *job) processes() (found []string) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		environ, err := os.ReadFile(path)
		if err != nil || !slices.Contains(strings.Split(string(environ), "\x00"), j.mark()) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		found = append(found,
			filepath.Base(filepath.Dir(path))+": "+strings.ReplaceAll(string(line), "\x00", " "))
	}
	return found
}

// left waits until no process of the job runs, and returns those that remain.
func (j *job) left() (left []string) {
	for deadline := time.Now().Add(ceiling / 4); time.Now().Before(deadline); time.Sleep(5 * step) {
		if left = j.processes(); len(left) == 0 {
			return nil
		}
	}
	return left
}

// pid waits until a rank reports that it has reached a state, and returns its pid.
func (j *job) pid(what string, rank int) int {
	j.t.Helper()
	path := fileOf(j.dir, what, rank)
	j.until(path, func() bool { _, err := os.Stat(path); return err == nil })
	text, err := os.ReadFile(path)
	pid, bad := strconv.Atoi(string(text))
	if err != nil || bad != nil {
		j.t.Fatalf("%s has no pid: %q, %v", path, text, err)
	}
	return pid
}

// until waits for a condition that must hold while the job runs.
func (j *job) until(what string, is func() bool) {
	j.t.Helper()
	for deadline := time.Now().Add(ceiling); !is(); time.Sleep(step) {
		select {
		case <-j.ended:
			if is() {
				return
			}
			j.t.Fatalf("the job has ended, and %s is not there:\n%s", what, &j.said)
		default:
		}
		if time.Now().After(deadline) {
			j.t.Fatalf("%s is not there after %s; running: %v", what, ceiling, j.processes())
		}
	}
}

// daemon returns the pid of a node's daemon.
func (j *job) daemon(node int) int {
	j.t.Helper()
	var rec record.Joined
	name := signal.NodeName(node, nodes, record.StateJoined)
	if node == 0 {
		var head record.Job
		j.read(&head, signal.ControlDir, signal.NameJob)
		return head.PID
	}
	j.read(&rec, signal.NodesDir, name)
	return rec.PID
}

func (j *job) read(record any, names ...string) {
	j.t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{j.logs, "world"}, names...)...))
	if err == nil {
		err = json.Unmarshal(data, record)
	}
	if err != nil {
		j.t.Fatal(err)
	}
}

// await waits for the end of the job, and returns its outcome.
func (j *job) await() seen {
	j.t.Helper()
	select {
	case <-j.ended:
	case <-time.After(ceiling):
		j.t.Fatalf("the job has not ended after %s; running: %v", ceiling, j.processes())
	}
	got := seen{code: j.cmd.ProcessState.ExitCode(), left: j.left()}
	if _, err := os.Stat(filepath.Join(j.logs, "world", signal.NameResult)); err == nil {
		got.result = new(record.Result)
		j.read(got.result, signal.NameResult)
	}
	return got
}

// strike injects the scheduled fault, and returns the time.
func (j *job) strike(s schedule, cgroup string) time.Time {
	j.t.Helper()
	victim := j.pid("begun", s.rank)
	if !s.early {
		for rank := range size {
			j.pid("up", rank)
		}
	}
	time.Sleep(s.after)
	var pids []int
	switch s.kind {
	case killRank:
		pids = []int{victim}
	case killDaemon:
		pids = []int{j.daemon(s.node())}
	case killNode:
		pids = family(j.daemon(s.node()))
	case crashRank, exitRank, abortRank:
		j.order(fmt.Sprintf("%s %d",
			map[kind]string{crashRank: orderCrash, exitRank: orderExit,
				abortRank: orderAbort}[s.kind], s.code))
		return j.signal(syscall.SIGUSR1, victim)
	case outOfMemory:
		j.order(orderGrow + " " + cgroup)
		return j.signal(syscall.SIGUSR1, victim)
	}
	return j.signal(syscall.SIGKILL, pids...)
}

func (j *job) order(text string) {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.dir, orderName), []byte(text), 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// signal sends a signal to processes of the job, and returns the time.
func (j *job) signal(sig syscall.Signal, pids ...int) time.Time {
	j.t.Helper()
	now := time.Now()
	for i, pid := range pids {
		// The others may have ended together with the first.
		if err := syscall.Kill(pid, sig); err != nil && i == 0 {
			j.t.Fatalf("cannot send %v to %d: %v", sig, pid, err)
		}
	}
	return now
}

// family returns a process and all its descendants, the process itself first.
func family(pid int) []int {
	parents := make(map[int][]int)
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, _ := strconv.Atoi(strings.Fields(rest)[1])
		parents[parent] = append(parents[parent], child)
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, parents[all[i]]...)
	}
	return all
}
