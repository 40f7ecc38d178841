//go:build testbed

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/testbed"
)

// reachTime limits the time to reach a phase. It is far longer than any phase takes.
const reachTime = time.Minute

// lane is a group of nodes of the testbed on which one job runs after the other.
type lane struct {
	*arena
	first, size int // the range of its nodes
	jobs        int // number of jobs started so far
}

// job is one srun of bringupd to which a schedule is applied.
type job struct {
	*lane
	s      schedule
	e      expectation
	logs   string // its log directory
	cmd    *exec.Cmd
	stdout bytes.Buffer  // may be read after the end
	stderr bytes.Buffer  // may be read after the end
	ended  chan struct{} // closed when srun has ended
	err    error         // may be read after the end

	mu      sync.Mutex
	present []bool      // by node: whether the last scan found processes; guarded by mu
	ever    []bool      // by node: whether any scan found processes; guarded by mu
	last    []time.Time // by node: start of the last scan that found processes; guarded by mu

	stuck    []bool    // by node: whether it had to be ended; nil if none had to
	struck   time.Time // when the last fault struck; zero if none has
	undone   time.Time // when all faults were removed
	events   []string  // log of the test's actions
	undoings []func() error
}

// run applies one schedule and evaluates the outcome.
func (l *lane) run(t *testing.T, s schedule, results *table) {
	l.jobs++
	j := &job{lane: l, s: s, e: expect(s), ended: make(chan struct{})}
	j.logs = filepath.Join(l.bed.Share(),
		fmt.Sprintf("%d-seed-%d", l.first, s.Seed)+"-"+strconv.Itoa(l.jobs))
	j.present, j.ever, j.last = make([]bool, l.size), make([]bool, l.size),
		make([]time.Time, l.size)
	before := make([]traces, l.size)
	for node := range l.size {
		before[node] = l.traces(t, node)
	}
	stop := j.observe()
	j.start(t)
	strikes := j.strikeAll(t.Context())
	j.awaitOthers()
	undoing := j.undo()
	srun, codes := j.end(t.Context())
	stop()
	o := j.see(srun, codes, before, t)
	wrong := judge(j.e, o)
	if err := errors.Join(strikes, undoing); err != nil {
		wrong = append(wrong, err.Error())
	}
	results.note(s, j.e, o, len(wrong) > 0)
	t.Logf("%s: %s", summary(s), o.outcome(j.e.Victims))
	if len(wrong) > 0 {
		t.Errorf("%s\n\n%s", strings.Join(wrong, "\n"), j.story(o))
		return
	}
	must(t, os.RemoveAll(j.logs))
}

// summary describes a schedule in one line.
func summary(s schedule) string {
	var b strings.Builder
	for i, f := range s.Faults {
		if i == 0 {
			fmt.Fprintf(&b, "%s + %s: ", f.Phase, f.After)
		} else {
			fmt.Fprintf(&b, "; %s later: ", f.After)
		}
		fmt.Fprintf(&b, "%s (node %d)", f.What, f.Node)
		if f.For > 0 {
			fmt.Fprintf(&b, " for %s", f.For)
		}
	}
	if s.Lifeline {
		b.WriteString(", with the lifeline")
	}
	if s.Calm {
		b.WriteString(", calm")
	}
	return b.String()
}

const (
	headService   = "1001"
	workerService = "1002"
	sandbox       = "1003"
)

// driver returns the driver's script, which fails if its work fails.
func (j *job) driver() string {
	return fmt.Sprintf("sleep %s || exit %d; exit %d", j.work(), failedCode, driverCode)
}

// work returns the duration of the driver's work in seconds.
func (j *job) work() string { return fmt.Sprintf("%.3f", j.s.Driver.Seconds()) }

// unreadScript starts a program whose standard error is a full pipe without a reader.
const unreadScript = `set -e
f=/tmp/chaos-unread.$$
mkfifo $f
exec 2<>$f
dd if=/dev/zero of=$f oflag=nonblock bs=65536 count=1 2>/dev/null
rm $f
exec "$0" "$@"`

func (j *job) start(t *testing.T) {
	t.Helper()
	args := []string{
		"--job-name=" + j.name(), "-N", strconv.Itoa(j.size), "-w",
		fmt.Sprintf("n[%d-%d]", j.first, j.first+j.size-1), "--ntasks-per-node=1",
		"--kill-on-bad-exit=0", "--wait=0", "--chdir=/",
	}
	if j.s.unread() {
		args = append(args, "sh", "-c", unreadScript)
	}
	args = append(args, j.program, "--log-dir="+j.logs, "--log-format=json",
		"--head-cmd=exec sleep "+headService, "--sandbox-cmd=exec sleep "+sandbox,
		// The services take a while to end, because otherwise the drain would be too short to strike.
		"--worker-cmd=trap 'sleep 0.3; exit 0' TERM; sleep "+workerService+" & wait",
		"--worker-ready=exec:sleep 0.2",
		"--peer-timeout="+peerTimeout.String(),
		"--join-timeout="+joinTimeout.String(),
		"--driver-grace="+driverGrace.String())
	if !j.s.Lifeline {
		args = append(args, "--lifeline=off")
	}
	if named(j.s) == hangDisk {
		args = append(args, "--temp-dir="+diskAt)
	}
	if j.s.unread() {
		args = append(args, "--verbose") // more output, so that all daemons write at once
	}
	j.cmd = j.bed.Command(context.WithoutCancel(t.Context()), "srun",
		append(args, "--", "sh", "-c", j.driver())...)
	j.cmd.Dir = "/"
	if j.s.Calm {
		j.cmd.Env = append(j.cmd.Env, calmVariable+"=1")
	}
	j.cmd.Stdout, j.cmd.Stderr = &j.stdout, &j.stderr
	must(t, j.cmd.Start())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		j.err = j.cmd.Wait()
		close(j.ended)
	})
	t.Cleanup(waiting.Wait)
	j.tell("srun is started")
}

func (j *job) tell(format string, args ...any) {
	j.events = append(j.events, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (j *job) over() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

// observe records which nodes have processes, until stop is called.
func (j *job) observe() (stop func()) {
	var observing sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	observing.Go(func() {
		for ctx.Err() == nil {
			j.note(j.looks.after(time.Now()))
		}
	})
	return func() {
		cancel()
		observing.Wait()
	}
}

func (j *job) note(now look) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for node := range j.size {
		if now.err != nil {
			return
		}
		j.present[node] = len(now.nodes[j.first+node]) > 0
		if j.present[node] {
			j.ever[node], j.last[node] = true, now.began
		}
	}
}

// watch waits for two scans of the processes, and then until enough returns true for their results.
// It reports whether that happened in time.
func (j *job) watch(within time.Duration, enough func() bool) bool {
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		j.looks.after(j.looks.after(time.Now()).began)
		j.mu.Lock()
		ok := enough()
		j.mu.Unlock()
		if ok {
			return true
		}
	}
	return false
}

// awaitOthers waits until all daemons have ended that the faults do not strike.
func (j *job) awaitOthers() {
	ended := j.watch(j.e.Within+slack/2, func() bool {
		for node := range j.size {
			if !slices.Contains(j.e.Victims, node) &&
				(j.present[node] || !j.ever[node]) && !j.over() {
				return false
			}
		}
		return true
	})
	j.tell("all others have ended: %v", ended)
}

// undo removes all faults that are still active.
func (j *job) undo() (err error) {
	for _, undo := range slices.Backward(j.undoings) {
		err = errors.Join(err, undo())
	}
	j.undone = time.Now()
	j.tell("all is undone")
	return err
}

// end waits for the end of all daemons and of srun, and kills them if they do not end. It returns
// the exit codes of srun and of its tasks.
func (j *job) end(ctx context.Context) (srun int, codes []int) {
	gone := func() bool { return !slices.Contains(j.present, true) }
	clean := j.watch(j.e.Within+slack/2, gone)
	patience := slack
	if j.e.Cut {
		patience = slack / 4
	}
	if clean && j.watch(patience, j.over) {
		return j.exitCodes()
	}
	j.mu.Lock()
	j.stuck = slices.Clone(j.present)
	j.mu.Unlock()
	j.tell("it does not end: srun has %v, the nodes with processes left are %v", j.over(), j.stuck)
	j.cancel(ctx)
	return -1, taskCodes(j.stderr.String(), j.size)
}

// cancel ends srun and the remaining processes of the job.
func (j *job) cancel(ctx context.Context) {
	if out, err := j.bed.Command(ctx, "scancel", "--name="+j.name()).CombinedOutput(); err != nil {
		j.tell("cannot cancel the job: %v: %s", err, out)
	}
	for !j.watch(slack, func() bool { return !slices.Contains(j.present, true) && j.over() }) &&
		ctx.Err() == nil {
		for node := range j.size {
			_ = j.killAll(node)
		}
		_ = j.cmd.Process.Signal(syscall.SIGKILL) // nsenter has become srun by exec
	}
}

// name returns the job's name in Slurm.
func (j *job) name() string { return filepath.Base(j.logs) }

// killAll kills all processes of the job on a node.
func (j *job) killAll(node int) error {
	all, err := j.bed.Processes(j.first + node)
	for _, p := range all {
		if !p.Infra {
			err = errors.Join(err, kill(p))
		}
	}
	return err
}

func kill(p testbed.Process) error {
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot kill %v: %v", p, err)
	}
	return nil
}

// exitCodes returns srun's exit code and, from srun's messages, those of its tasks.
func (j *job) exitCodes() (int, []int) {
	var exit *exec.ExitError
	switch {
	case j.err == nil:
		return 0, taskCodes(j.stderr.String(), j.size)
	case errors.As(j.err, &exit):
		return exit.ExitCode(), taskCodes(j.stderr.String(), j.size)
	}
	return -1, nil
}

// see collects all observations of the job.
func (j *job) see(srun int, codes []int, before []traces, t *testing.T) seen {
	t.Helper()
	o := seen{Struck: !j.struck.IsZero(), Srun: srun, Codes: codes}
	for node, last := range j.last {
		from := j.struck
		if slices.Contains(j.e.Victims, node) {
			from = j.undone
		}
		ended := max(0, last.Sub(from))
		if j.stuck != nil && j.stuck[node] {
			ended = -1
		}
		o.Ended = append(o.Ended, ended)
		o.Left = append(o.Left, j.left(t, node, before[node])...)
	}
	run := readRun(j.logs, j.size)
	o.Torn = run.torn
	o.Told = run.told
	if len(o.Told) == 0 {
		o.Told = lastWords(j.stderr.String(), codes)
	}
	return o
}

// story returns all information that helps to find out what went wrong.
func (j *job) story(o seen) string {
	return fmt.Sprintf("seed %d: %s\n%s\nagain: go test -tags testbed ./test/chaos -v -run "+
		"TestChaos -seed=%d -share=%s -nodes=%d -lifeline=%s\n"+
		"expected: %s\nseen: %s\nwhat was done:\n%s\n\nstdout: %s\nstderr: %s\n%s",
		j.s.Seed, summary(j.s), j.s, j.s.Seed, *shareFlag, j.size, *lifelineFlag,
		j.e, o, strings.Join(j.events, "\n"), &j.stdout, &j.stderr, runStory(j.logs))
}
