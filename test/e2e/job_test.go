//go:build testbed

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/testbed"
)

// ceiling limits every wait of a test. It is far longer than any of them takes.
const ceiling = 90 * time.Second

// job is one srun of bringupd, active or ended.
type job struct {
	t       *testing.T
	bed     *lane
	cmd     *exec.Cmd
	logs    string // its log directory, as seen by the host
	stdout  buffer
	stderr  buffer
	ended   chan struct{}
	err     error
	started time.Time
}

// buffer is a bytes.Buffer that may be read and written concurrently.
type buffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

// launch contains the arguments of srun and of bringupd.
type launch struct {
	nodes  int
	srun   []string // additional flags of srun
	logs   string   // log directory; empty means a new one on the share
	flags  []string // flags of bringupd
	driver []string
	// container is the command, if any, that runs bringupd in a container on each node.
	container []string
}

// places counts the names that place has returned.
var places atomic.Int64

// place returns an unused path on the share, because many tests run on one testbed.
func (bed *lane) place(t *testing.T) string {
	name := strings.ReplaceAll(t.Name(), "/", "_") + "-" + strconv.FormatInt(places.Add(1), 10)
	return filepath.Join(bed.Share(), name)
}

// makeDir makes a directory on the share that the job's user can write to.
func (bed *lane) makeDir(t *testing.T, path string) {
	t.Helper()
	must(t, os.MkdirAll(path, 0o755))
	must(t, bed.Own(path))
}

// start starts a job. The test's cleanup waits for its end.
func (bed *lane) start(t *testing.T, l launch) *job {
	t.Helper()
	if l.logs == "" {
		l.logs = bed.place(t)
	}
	// Request the first nodes explicitly: Slurm avoids nodes that have just been used.
	args := append([]string{"-N", itoa(l.nodes), "-w", "n[0-" + itoa(l.nodes-1) + "]",
		"--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0"}, l.srun...)
	args = append(append(args, l.container...), program, "--log-dir="+l.logs)
	args = append(args, l.flags...)
	if len(l.driver) > 0 {
		args = append(append(args, "--"), l.driver...)
	}
	return bed.startCommand(t, l.logs, bed.Command(context.Background(), "srun", args...))
}

func (bed *lane) startCommand(t *testing.T, logs string, cmd *exec.Cmd) *job {
	t.Helper()
	t.Cleanup(func() { bed.noneLeft(t) }) // after it has ended
	return bed.begin(t, logs, cmd)
}

// begin starts a job. The test's cleanup waits for its end, but does not check for leftovers.
func (bed *lane) begin(t *testing.T, logs string, cmd *exec.Cmd) *job {
	t.Helper()
	j := &job{t: t, bed: bed, cmd: cmd, logs: logs, ended: make(chan struct{}), started: time.Now()}
	cmd.Stdout, cmd.Stderr = &j.stdout, &j.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		j.err = cmd.Wait()
		close(j.ended)
	}()
	t.Cleanup(func() {
		still := cmd.Process.Signal(syscall.Signal(0)) == nil
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-j.ended
		if t.Failed() {
			t.Logf("the job (it still ran: %v) printed\n%s%s", still, j.stdout.String(), j.stderr.String())
		}
	})
	return j
}

// run starts a job and waits for its end.
func (bed *lane) run(t *testing.T, l launch) *job {
	t.Helper()
	j := bed.start(t, l)
	j.wait()
	return j
}

// wait waits for the end of the job and returns its exit code.
func (j *job) wait() int {
	j.t.Helper()
	select {
	case <-j.ended:
	case <-time.After(ceiling):
		j.t.Fatalf("the job has not ended after %s\nstdout: %s\nstderr: %s\n%s", ceiling, &j.stdout,
			&j.stderr, j.bed.processes())
	}
	var exit *exec.ExitError
	switch {
	case j.err == nil:
		return 0
	case errors.As(j.err, &exit):
		return exit.ExitCode()
	}
	j.t.Fatal(j.err)
	return -1
}

// wantCode waits for the end of the job and fails the test if the exit code differs.
func (j *job) wantCode(want int) {
	j.t.Helper()
	if got := j.wait(); got != want {
		j.t.Fatalf("the job ended with %d, want %d\nstdout: %s\nstderr: %s", got, want,
			&j.stdout, &j.stderr)
	}
}

// runDir waits for the run directory and returns it.
func (j *job) runDir() string {
	j.t.Helper()
	var found string
	eventually(j.t, func() string {
		entries, err := os.ReadDir(j.logs)
		if err != nil {
			return err.Error()
		}
		for _, entry := range entries {
			if name := entry.Name(); entry.IsDir() && name[0] != '.' && name != signal.BadNodesDir {
				found = filepath.Join(j.logs, entry.Name())
				return ""
			}
		}
		return "no run directory in " + j.logs + "\n" + j.stderr.String()
	})
	return found
}

// reached waits for a name in the run directory, as seen by the host.
func (j *job) reached(name string) {
	j.t.Helper()
	dir := j.runDir()
	eventually(j.t, func() string {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			return err.Error() + "\n" + j.stderr.String()
		}
		return ""
	})
}

// result returns the job's result record.
func (j *job) result() record.Result {
	j.t.Helper()
	var result record.Result
	readJSON(j.t, filepath.Join(j.runDir(), signal.NameResult), &result)
	return result
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Fatalf("cannot read %s: %v", path, err)
	}
}

// eventually waits until see returns "". If that does not happen, the failure message contains the
// last returned string.
func eventually(t *testing.T, see func() string) {
	t.Helper()
	within(t, ceiling, see)
}

// pollPeriod is the pause between two checks. Listing the processes takes some milliseconds.
const pollPeriod = 20 * time.Millisecond

func within(t *testing.T, ceiling time.Duration, see func() string) {
	t.Helper()
	deadline := time.Now().Add(ceiling)
	for {
		seen := see()
		if seen == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s still: %s", ceiling, seen)
		}
		time.Sleep(pollPeriod)
	}
}

// find waits for a process of the job on a node whose command line begins with these words, and
// returns its pid, the lowest if there are several.
func (bed *lane) find(t *testing.T, node int, words ...string) int {
	t.Helper()
	pid := 0
	eventually(t, func() string {
		all, err := bed.AllProcesses()
		if err != nil {
			return err.Error()
		}
		for _, p := range all[node] {
			if !p.Infra && len(p.Args) >= len(words) && slices.Equal(p.Args[:len(words)], words) &&
				(pid == 0 || p.PID < pid) {
				pid = p.PID
			}
		}
		if pid == 0 {
			return "no process " + strings.Join(words, " ") + "\n" + bed.listed(all)
		}
		return ""
	})
	return pid
}

// daemonOf returns the pid of a node's daemon.
func (bed *lane) daemonOf(t *testing.T, node int) int {
	t.Helper()
	return bed.find(t, node, program)
}

func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("cannot send %v to %d: %v", sig, pid, err)
	}
}

// noneLeft waits until no process of a job runs on the nodes of the lane.
func (bed *lane) noneLeft(t *testing.T) {
	t.Helper()
	eventually(t, func() string { return bed.processes() })
}

// processes lists the processes on the lane's nodes, without the testbed's own.
func (bed *lane) processes() string {
	all, err := bed.AllProcesses()
	if err != nil {
		return err.Error()
	}
	return bed.listed(all)
}

// listed formats the result of a scan, by node. It omits the testbed's own processes.
func (bed *lane) listed(all [][]testbed.Process) string {
	var list []string
	for node := range all {
		for _, p := range all[node] {
			if !p.Infra {
				list = append(list, bed.Node(node)+": "+p.String())
			}
		}
	}
	return strings.Join(list, "\n")
}

// installed returns the value of BRINGUPD_TEST_name, the path of a program that make test has
// installed.
func installed(t *testing.T, name string) string {
	t.Helper()
	path := os.Getenv("BRINGUPD_TEST_" + name)
	if path == "" {
		t.Fatalf("cannot run without %s: BRINGUPD_TEST_%s must name what has it (make test installs it)", name, name)
	}
	return path
}
