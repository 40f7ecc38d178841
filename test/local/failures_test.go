package local

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

var (
	failuresFlag     = flag.Int("failures", 12, "how many runs TestDrawnFailures draws")
	failuresSeedFlag = flag.Uint64("failures-seed", 0, "the seed of its first run; 0: from the clock")
)

// drawnFailure is the death of one process of a run.
type drawnFailure struct {
	kind  health.Kind // of the cause
	place int         // an index into the nodes that are left
	after int         // how many steps the attempt makes before
}

// drawnRun is the plan of a run.
type drawnRun struct {
	nodes, minNodes, restarts int
	restartOn                 string
	failures                  []drawnFailure // one for each attempt, as long as there is one
}

// saveInterval is the number of steps between two checkpoints, and stepPause the time between steps.
const (
	saveInterval = 7
	lastStep     = 40
	stepPause    = 20 * time.Millisecond
)

// drawRun returns the plan of a seed.
func drawRun(seed uint64) drawnRun {
	draw := rand.New(rand.NewPCG(seed, 41))
	r := drawnRun{nodes: 2 + draw.IntN(3), restarts: max(0, draw.IntN(6)-1)}
	r.minNodes = max(1, r.nodes-draw.IntN(3))
	r.restartOn = []string{"node", "service", "rank", "any"}[draw.IntN(4)]
	kinds := []health.Kind{health.RankFailed, health.ServiceDied, health.DaemonDied}
	for range draw.IntN(6) {
		r.failures = append(r.failures, drawnFailure{kinds[draw.IntN(3)], draw.IntN(4), 2 + draw.IntN(8)})
	}
	return r
}

// predictedAttempt is what happens in an attempt.
type predictedAttempt struct {
	nodes []int       // that take part
	cause health.Kind // empty: the attempt succeeds
	node  int         // of the process that dies
}

// predict returns the attempts of a run, by the documented rules of restarts.
func (r drawnRun) predict() (attempts []predictedAttempt) {
	nodes := make([]int, r.nodes)
	for i := range nodes {
		nodes[i] = i
	}
	for attempt := 0; ; attempt++ {
		p := predictedAttempt{nodes: slices.Clone(nodes)}
		if attempt == len(r.failures) {
			return append(attempts, p)
		}
		f := r.failures[attempt]
		p.cause, p.node = f.kind, nodes[f.place%len(nodes)]
		attempts = append(attempts, p)
		wanted := r.restartOn == "any"
		switch f.kind {
		case health.RankFailed:
			wanted = wanted || r.restartOn == "rank"
		case health.ServiceDied:
			wanted = wanted || r.restartOn == "service"
		default: // a daemon: nothing starts it again, and the head cannot be replaced
			nodes = slices.DeleteFunc(nodes, func(node int) bool { return node == p.node })
			wanted = p.node != 0 && len(nodes) >= r.minNodes
		}
		if !wanted || attempt >= r.restarts {
			return attempts
		}
	}
}

// TestPredict checks the model with some plans.
func TestPredict(t *testing.T) {
	rank, service, daemon := drawnFailure{kind: health.RankFailed}, drawnFailure{kind: health.ServiceDied}, drawnFailure{kind: health.DaemonDied, place: 1}
	for _, tc := range []struct {
		name string
		run  drawnRun
		want int // attempts
	}{
		{"no failure", drawnRun{2, 2, 3, "any", nil}, 1},
		{"a rank, by default", drawnRun{2, 2, 3, "node", []drawnFailure{rank}}, 1},
		{"a rank", drawnRun{2, 2, 3, "rank", []drawnFailure{rank}}, 2},
		{"a rank and a service", drawnRun{2, 2, 3, "rank", []drawnFailure{rank, service, rank}}, 2},
		{"all of them", drawnRun{3, 2, 3, "any", []drawnFailure{rank, service, daemon}}, 4},
		{"used up", drawnRun{3, 2, 1, "any", []drawnFailure{rank, service, daemon}}, 2},
		{"no spare", drawnRun{2, 2, 3, "node", []drawnFailure{daemon}}, 1},
		{"one spare", drawnRun{3, 2, 3, "node", []drawnFailure{daemon, daemon}}, 2},
		{"the head", drawnRun{3, 1, 3, "any", []drawnFailure{{kind: health.DaemonDied}}}, 1},
	} {
		if got := tc.run.predict(); len(got) != tc.want {
			t.Errorf("%s: there are %d attempts, not %d: %+v", tc.name, len(got), tc.want, got)
		}
	}
}

// TestDrawnFailures kills ranks, services and daemons of drawn runs, and compares the attempts,
// their causes and the goodput with the model and with what the ranks have written.
func TestDrawnFailures(t *testing.T) {
	first := *failuresSeedFlag
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	t.Logf("-failures-seed=%d", first)
	for seed := first; seed < first+uint64(*failuresFlag); seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			newFailing(t, drawRun(seed)).run()
		})
	}
}

// failingRank is the program of each rank. Rank 0 writes the time of each step, and saves some of
// them; the others print the steps that it has written.
const failingRank = `set -f
echo $$ >$D/rank.$BRINGUPD_ATTEMPT.$BRINGUPD_LAUNCH_RANK.new
mv $D/rank.$BRINGUPD_ATTEMPT.$BRINGUPD_LAUNCH_RANK.new $D/rank.$BRINGUPD_ATTEMPT.$BRINGUPD_LAUNCH_RANK
at=$D/at.$BRINGUPD_ATTEMPT i=0
if [ $RANK = 0 ]; then
	[ ! -e $D/saved ] || i=$(<$D/saved)
	until [ $i -ge $LAST ] && [ -e $D/finish.$BRINGUPD_ATTEMPT ]; do
		[ $i -lt $LAST ] || { sleep 0.02; continue; }
		i=$((i+1))
		echo "step $i"
		echo "$EPOCHREALTIME $BRINGUPD_ATTEMPT $i" >>$D/steps
		echo $i >$at
		[ $((i%SAVE)) != 0 ] || { echo $i >$D/saved.new; mv $D/saved.new $D/saved; }
		sleep $PAUSE
	done
else
	until [ -n "$i" ] && [ $i -ge $LAST ] && [ -e $D/finish.$BRINGUPD_ATTEMPT ]; do
		sleep 0.05
		[ ! -e $at ] || i=$(<$at)
		[ -z "$i" ] || [ $i = 0 ] || echo "step $i"
	done
fi`

// failingService is the service of each node.
const failingService = `n=$D/service.$BRINGUPD_ATTEMPT.$BRINGUPD_LAUNCH_RANK; echo $$ >$n.new; mv $n.new $n; exec sleep 300`

// failing is a run into which failures are injected.
type failing struct {
	t       *testing.T
	plan    drawnRun
	dir     string
	said    bytes.Buffer
	cmd     *exec.Cmd
	ended   chan struct{}
	started time.Time
}

// newFailing starts a run.
func newFailing(t *testing.T, plan drawnRun) *failing {
	t.Helper()
	f := &failing{t: t, plan: plan, dir: t.TempDir(), ended: make(chan struct{})}
	args := []string{
		"local", fmt.Sprint("--nodes=", plan.nodes), fmt.Sprintf("--nnodes=%d:%d", plan.minNodes, plan.nodes),
		"--job-id=j", "--ranks-per-node=1", `--progress=step (\d+)`, "--log-dir=" + filepath.Join(f.dir, "logs"),
		"--head-cmd=" + failingService, "--worker-cmd=" + failingService, "--head-ready=", "--worker-ready=",
	}
	if plan.restarts > 0 {
		args = append(args, fmt.Sprint("--restarts=", plan.restarts), "--restart-on="+plan.restartOn, "--restart-backoff=10ms")
	}
	f.cmd = exec.Command(filepath.Join(bin, "bringupd"), append(args, "--", "bash", "-c", failingRank)...)
	f.cmd.Env = append(os.Environ(), "D="+f.dir, fmt.Sprint("LAST=", lastStep), fmt.Sprint("SAVE=", saveInterval), fmt.Sprint("PAUSE=", stepPause.Seconds()),
		"GORACE=exitcode=199 atexit_sleep_ms=0")
	f.cmd.Stdout, f.cmd.Stderr = &f.said, &f.said
	f.started = time.Now()
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = f.cmd.Wait()
		close(f.ended)
	}()
	t.Cleanup(f.end)
	return f
}

// await waits until a condition holds, or fails the test.
func (f *failing) await(what string, is func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(ceiling); !is(); time.Sleep(step) {
		select {
		case <-f.ended:
			f.t.Fatalf("%+v: it has ended before %s:\n%s", f.plan, what, &f.said)
		default:
		}
		if time.Now().After(deadline) {
			f.end()
			f.t.Fatalf("%+v: %s has not come:\n%s", f.plan, what, &f.said)
		}
	}
}

// end ends the run from outside.
func (f *failing) end() {
	_ = f.cmd.Process.Signal(syscall.SIGTERM)
	<-f.ended
}

// run injects the failures and checks the outcome.
func (f *failing) run() {
	attempts := f.plan.predict()
	for number, attempt := range attempts {
		for _, node := range attempt.nodes {
			for _, what := range []string{"rank", "service"} {
				f.await(fmt.Sprintf("the %s of node %d in attempt %d", what, node, number), func() bool { return f.pid(what, number, node) > 0 })
			}
		}
		if attempt.cause == "" {
			f.write(fmt.Sprint("finish.", number))
			break
		}
		f.await(fmt.Sprint("steps of attempt ", number), func() bool { return len(f.steps(number)) >= f.plan.failures[number].after })
		f.kill(number, attempt)
	}
	select {
	case <-f.ended:
	case <-time.After(ceiling):
		f.end()
		f.t.Errorf("%+v: it has not ended", f.plan)
	}
	f.judge(attempts, time.Since(f.started))
}

func (f *failing) write(name string) {
	if err := os.WriteFile(filepath.Join(f.dir, name), nil, 0o600); err != nil {
		f.t.Error(err)
	}
}

// pid returns the process of a node in an attempt, or 0 if it has not begun.
func (f *failing) pid(what string, attempt, node int) int {
	data, _ := os.ReadFile(filepath.Join(f.dir, fmt.Sprintf("%s.%d.%d", what, attempt, node)))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}

// kill kills the process that fails in an attempt.
func (f *failing) kill(number int, attempt predictedAttempt) {
	f.t.Helper()
	pid := 0
	switch attempt.cause {
	case health.RankFailed:
		pid = f.pid("rank", number, attempt.node)
	case health.ServiceDied:
		pid = f.pid("service", number, attempt.node)
	default:
		var joined record.Joined
		data, err := os.ReadFile(filepath.Join(f.runDir(number), "nodes", fmt.Sprintf("%04d.joined", attempt.node)))
		if err == nil {
			err = json.Unmarshal(data, &joined)
		}
		if pid = joined.PID; err != nil || pid == 0 {
			f.end()
			f.t.Fatalf("cannot find the daemon of node %d: %v", attempt.node, err)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		f.t.Errorf("cannot kill the %s of node %d: %v", attempt.cause, attempt.node, err)
	}
}

func (f *failing) runDir(attempt int) string {
	name := "j"
	if attempt > 0 {
		name += fmt.Sprint("-a", attempt)
	}
	return filepath.Join(f.dir, "logs", name)
}

// writtenStep is a step of rank 0.
type writtenStep struct {
	at   time.Duration // since 1970
	step float64
}

// steps returns the steps of an attempt that rank 0 has written.
func (f *failing) steps(attempt int) (all []writtenStep) {
	data, _ := os.ReadFile(filepath.Join(f.dir, "steps"))
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(strings.Replace(line, ",", ".", 1))
		if len(fields) == 3 && strings.HasSuffix(line, "\n") && fields[1] == strconv.Itoa(attempt) {
			at, _ := strconv.ParseFloat(fields[0], 64)
			number, _ := strconv.ParseFloat(fields[2], 64)
			all = append(all, writtenStep{time.Duration(at * 1e9), number})
		}
	}
	return all
}

// judge compares the outcome with the prediction, and checks that nothing is left running.
func (f *failing) judge(attempts []predictedAttempt, took time.Duration) {
	t := f.t
	var last record.Result
	for number, attempt := range attempts {
		last = record.Result{}
		data, err := os.ReadFile(filepath.Join(f.runDir(number), "result.json"))
		if err == nil {
			err = json.Unmarshal(data, &last)
		}
		cause := health.Kind("")
		if last.Cause != nil {
			cause = last.Cause.Kind
		}
		next := number + 1
		if next == len(attempts) {
			next = 0
		}
		if err != nil || cause != attempt.cause || last.NextAttempt != next {
			t.Errorf("attempt %d has the cause %q and is followed by %d (%v), not %q and %d", number, cause, last.NextAttempt, err, attempt.cause, next)
		}
	}
	if _, err := os.Stat(f.runDir(len(attempts))); err == nil {
		t.Error("there is one attempt too many")
	}
	// The head has the progress of the job. If its daemon was killed, no one has.
	if end := attempts[len(attempts)-1]; end.cause != health.DaemonDied || end.node != 0 {
		f.judgeProgress(len(attempts), last.Progress, took)
	}
	if left := (&story{mark: "D=" + f.dir}).left(); len(left) > 0 {
		t.Errorf("still running: %s", strings.Join(left, "; "))
	}
	if t.Failed() {
		t.Logf("%+v\n%+v\n%s", f.plan, attempts, &f.said)
	}
}

// lineDelay is how much later than its rank a daemon may see a step, on a busy machine, and how long
// a rank may make steps after the verdict.
const lineDelay = 300 * time.Millisecond

// judgeProgress compares the progress with the steps that rank 0 has written.
func (f *failing) judgeProgress(attempts int, got *record.Progress, took time.Duration) {
	if got == nil {
		f.t.Error("there is no progress")
		return
	}
	var productive time.Duration
	var first, last time.Duration
	reached, certain := 0.0, 0.0 // the maximum, and that of all steps but those just before an end
	for attempt := range attempts {
		steps := f.steps(attempt)
		for i, now := range steps {
			if i > 0 && now.step > reached {
				productive += now.at - steps[i-1].at
			}
			if first == 0 {
				first = now.at
			}
			last = now.at
			reached = max(reached, now.step)
			if steps[len(steps)-1].at-now.at >= lineDelay {
				certain = max(certain, now.step)
			}
		}
	}
	tolerance := time.Duration(attempts) * lineDelay
	if diff := (got.Productive - productive).Abs(); diff > tolerance {
		f.t.Errorf("%s were productive, and by the ranks %s: more than %s apart", got.Productive, productive, tolerance)
	}
	if got.Elapsed > took || got.Elapsed < last-first-lineDelay {
		f.t.Errorf("the job took %s, by the test %s, and from the first step to the last %s", got.Elapsed, took, last-first)
	}
	if own := productive.Seconds() / got.Elapsed.Seconds(); math.Abs(got.Goodput-own) > tolerance.Seconds()/got.Elapsed.Seconds() {
		f.t.Errorf("the goodput is %.3f, and by the ranks %.3f", got.Goodput, own)
	}
	if got.MaxStep > reached || got.MaxStep < certain {
		f.t.Errorf("the maximum is step %v, and by the ranks %v, at least %v", got.MaxStep, reached, certain)
	}
	f.t.Logf("productive %s, by the ranks %s; elapsed %s, by the test %s", got.Productive, productive, got.Elapsed, took)
}
