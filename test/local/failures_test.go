package local

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

var (
	failuresFlag     = flag.Int("failures", 12, "how many runs TestDrawnFailures draws")
	failuresSeedFlag = flag.Uint64("failures-seed", 0, "the seed of its first run; 0: from the clock")
	restartOnFlag    = flag.String("restart-on", "", "--restart-on of its runs; empty: drawn")
)

// drawnFailure is the death of one process of a run.
type drawnFailure struct {
	kind  health.Kind // of the cause
	place int         // an index into the nodes that are left
	code  int         // of a rank or of the driver; 0: SIGKILL ends it
	// gained is the number of steps beyond the maximum that the attempt makes before. With 0, it makes
	// no more than earlier ones.
	gained int
}

// drawnRun is the plan of a run.
type drawnRun struct {
	nodes, minNodes, restarts int
	restartOn                 string
	noCodes                   string         // --no-restart-codes
	driver                    bool           // the program is a driver, and not a world of ranks
	failures                  []drawnFailure // one for each attempt, as long as there is one
}

const (
	saveInterval = 7 // number of steps between two checkpoints
	lastGain     = 8 // number of steps beyond the maximum that the last attempt makes
	stepPause    = 20 * time.Millisecond
)

// drawRun returns the plan of a seed.
func drawRun(seed uint64, restartOn string) drawnRun {
	draw := rand.New(rand.NewPCG(seed, 41))
	r := drawnRun{nodes: 2 + draw.IntN(3), restarts: draw.IntN(5)}
	r.minNodes = 1 + draw.IntN(r.nodes)
	r.restartOn = []string{"node", "service", "rank", "any"}[draw.IntN(4)]
	if restartOn != "" {
		r.restartOn = restartOn
	}
	r.noCodes = []string{"", "", "", "3", "70-79", "2,130-140"}[draw.IntN(6)]
	r.driver = draw.IntN(3) == 0
	program := health.RankFailed
	if r.driver {
		program = health.DriverFailed
	}
	kinds := []health.Kind{program, health.ServiceDied, health.DaemonDied}
	switch r.restartOn { // most failures lead to a restart
	case "node":
		kinds = append(kinds, health.DaemonDied, health.DaemonDied)
	case "service":
		kinds = append(kinds, health.ServiceDied, health.ServiceDied)
	case "rank":
		kinds = append(kinds, program, program)
	}
	codes := []int{0, 0, 0, 1, 2, 3, 76, []int{65, 127}[draw.IntN(2)]}
	for range draw.IntN(7) {
		f := drawnFailure{kind: kinds[draw.IntN(len(kinds))], place: draw.IntN(4)}
		f.gained = 2 + draw.IntN(8)
		if code := codes[draw.IntN(len(codes))]; f.kind == program {
			f.code = code
		}
		if draw.IntN(4) == 0 {
			f.gained = 0
		}
		r.failures = append(r.failures, f)
	}
	return r
}

// predictedAttempt is what happens in an attempt.
type predictedAttempt struct {
	run    int         // the first attempt in its run directory, for which services were started
	goesOn bool        // its run goes on with new ranks
	nodes  []int       // that take part
	cause  health.Kind // of the result; empty: the driver has ended
	code   int         // of the attempt
	fault  drawnFailure
	node   int // of the process that dies
}

// fails reports whether a process dies in the attempt.
func (p predictedAttempt) fails() bool { return p.fault.kind != "" }

// predict returns the attempts of a run, by the documented rules of restarts.
func (r drawnRun) predict() (attempts []predictedAttempt) {
	nodes := make([]int, r.nodes)
	for i := range nodes {
		nodes[i] = i
	}
	reached := 0 // the newest step
	run := 0
	for attempt := 0; ; attempt++ {
		p := predictedAttempt{run: run, nodes: slices.Clone(nodes)}
		if attempt == len(r.failures) {
			return append(attempts, p)
		}
		p.fault = r.failures[attempt]
		p.cause, p.node = p.fault.kind, nodes[p.fault.place%len(nodes)]
		wanted := r.restartOn == "any"
		switch p.cause {
		case health.DriverFailed: // on the head's node
			p.code, p.node = cmp.Or(p.fault.code, 137), 0
		case health.RankFailed:
			p.code, wanted = cmp.Or(p.fault.code, 137), wanted || r.restartOn == "rank"
		case health.ServiceDied:
			p.code, wanted = 77, wanted || r.restartOn == "service"
		default: // a daemon: nothing starts it again, and the head cannot be replaced
			nodes = slices.DeleteFunc(nodes, func(node int) bool { return node == p.node })
			p.code, wanted = 76, p.node != 0 && len(nodes) >= r.minNodes
			if len(nodes) == 0 { // no daemon is left that could write a result
				p.cause, p.code = "", 137
			}
		}
		reached += p.fault.gained
		mistake := slices.Contains([]int{64, 65, 66, 126, 127}, p.code) ||
			slices.Contains(codesOf[r.noCodes], p.code)
		isProgram := p.cause == health.RankFailed || p.cause == health.DriverFailed
		stuck := isProgram && attempt > 0 && reached > 0 && p.fault.gained == 0
		restarts := wanted && !mistake && !stuck && attempt < r.restarts
		if p.cause == health.DriverFailed && !restarts {
			p.cause = "" // its end is that of the job
		}
		p.goesOn = restarts && p.cause == health.RankFailed
		attempts = append(attempts, p)
		if !restarts {
			return attempts
		}
		if !p.goesOn {
			run = attempt + 1
		}
	}
}

// codesOf has the exit codes of each --no-restart-codes that can occur in a run.
var codesOf = map[string][]int{"3": {3}, "70-79": {76, 77}, "2,130-140": {2, 137}}

// TestDrawnFailures kills ranks, drivers, services and daemons of drawn runs, or makes ranks and
// drivers end with an exit code. It compares the attempts, their causes, nodes and codes with the
// model, and the goodput with what the ranks have written.
func TestDrawnFailures(t *testing.T) {
	first := *failuresSeedFlag
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	t.Logf("-failures-seed=%d", first)
	injected := make(map[string]int)
	for seed := first; seed < first+uint64(*failuresFlag); seed++ {
		plan := drawRun(seed, *restartOnFlag)
		for i, attempt := range plan.predict() {
			injected["attempts"]++
			if attempt.fails() {
				injected[string(attempt.fault.kind)]++
			}
			if i > 0 {
				injected["restarts"]++
			}
		}
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			newFailing(t, plan).run()
		})
	}
	t.Logf("%d runs: %v", *failuresFlag, injected)
}

// failingProgram is the program of the driver and of each rank. Rank 0 writes the time of each step,
// and saves some of them; the others print the steps that it has written. An attempt makes no step
// before the test has written the number of its last one.
const failingProgram = `set -f
a=$BRINGUPD_ATTEMPT node=${BRINGUPD_LAUNCH_RANK:-0}
echo $$ >$D/program.$a.$node.new
mv $D/program.$a.$node.new $D/program.$a.$node
at=$D/at.$a i=0 limit=
[ ! -e $D/saved ] || i=$(<$D/saved)
until [ -e $D/finish.$a ]; do
	[ ! -e $D/exit.$a.$node ] || exit $(<$D/exit.$a.$node)
	if [ ${RANK:-0} != 0 ]; then
		sleep 0.05
		[ ! -e $at ] || i=$(<$at)
		[ ! -e $at -o -z "$i" ] || echo "step $i"
		continue
	fi
	[ -n "$limit" ] || [ ! -e $D/limit.$a ] || limit=$(<$D/limit.$a)
	[ $i -lt ${limit:-0} ] || { sleep 0.05; continue; }
	i=$((i+1))
	echo "$EPOCHREALTIME $a $i" >>$D/steps
	echo "step $i"
	echo $i >$at
	[ $((i%SAVE)) != 0 ] || { echo $i >$D/saved.new; mv $D/saved.new $D/saved; }
	sleep $PAUSE
done`

// failingService is the service of each node.
const failingService = `n=$D/service.$BRINGUPD_ATTEMPT.$BRINGUPD_LAUNCH_RANK
echo $$ >$n.$$
mv $n.$$ $n
exec sleep 300`

// failing is a run into which failures are injected.
type failing struct {
	*jobtest.Job
	plan    drawnRun
	started time.Time
	kills   []time.Time // of each attempt
	// maxDelay is how late this process was scheduled at most. It is valid after the end.
	maxDelay   time.Duration
	awaitWatch func()
}

// newFailing starts a run.
func newFailing(t *testing.T, plan drawnRun) *failing {
	t.Helper()
	dir := t.TempDir()
	f := &failing{plan: plan, Job: &jobtest.Job{T: t, Dir: dir, Logs: filepath.Join(dir, "logs"),
		Mark: jobtest.Mark("D=" + dir)}}
	args := []string{jobtest.Bringupd,
		"local", fmt.Sprint("--nodes=", plan.nodes), fmt.Sprintf("--nnodes=%d:%d", plan.minNodes, plan.nodes),
		"--job-id=j", `--progress=step (\d+)`, "--log-dir=" + f.Logs,
		"--head-cmd=" + failingService, "--worker-cmd=" + failingService, "--head-ready=", "--worker-ready=",
	}
	if plan.restarts > 0 {
		args = append(args, fmt.Sprint("--restarts=", plan.restarts), "--restart-on="+plan.restartOn,
			"--no-restart-codes="+plan.noCodes)
	}
	if !plan.driver {
		args = append(args, "--ranks-per-node=1")
	}
	args = append(args, "--", "bash", "-c", failingProgram)
	f.started = time.Now()
	f.Start([]string{fmt.Sprint("SAVE=", saveInterval), fmt.Sprint("PAUSE=", stepPause.Seconds())}, args...)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for !f.HasEnded() {
			began := time.Now()
			time.Sleep(step)
			f.maxDelay = max(f.maxDelay, time.Since(began)-step)
		}
	}()
	f.awaitWatch = func() { <-watched }
	return f
}

// end ends the run from outside.
func (f *failing) end() {
	_ = f.Cmd.Process.Signal(syscall.SIGTERM)
	f.AwaitEnd(ceiling)
}

// run injects the failures and checks the outcome.
func (f *failing) run() {
	attempts := f.plan.predict()
	for number, attempt := range attempts {
		for _, node := range attempt.nodes {
			if node == 0 || !f.plan.driver {
				f.awaitProcess("program", number, node)
			}
			f.awaitProcess("service", attempt.run, node)
		}
		reached := f.reached()
		if !attempt.fails() {
			f.makeSteps(number, reached+lastGain)
			f.write(fmt.Sprint("finish.", number), "")
			break
		}
		gained := attempt.fault.gained
		if gained > 0 {
			f.write(fmt.Sprint("limit.", number), "1000000") // it dies between two steps
			f.Need(fmt.Sprint("steps of attempt ", number),
				func() bool { return f.reached() >= reached+gained })
		} else {
			f.makeSteps(number, reached+gained)
		}
		f.kill(number, attempt)
	}
	f.AwaitEnd(ceiling)
	f.awaitWatch()
	f.judge(attempts, time.Since(f.started))
}

// awaitProcess waits until a process of a node has begun.
func (f *failing) awaitProcess(what string, attempt, node int) {
	f.T.Helper()
	f.Need(fmt.Sprintf("the %s of node %d in attempt %d", what, node, attempt),
		func() bool { return f.pid(what, attempt, node) > 0 })
}

// makeSteps makes an attempt continue up to a step, and waits until the head knows it.
func (f *failing) makeSteps(attempt, last int) {
	f.T.Helper()
	f.write(fmt.Sprint("limit.", attempt), strconv.Itoa(last))
	f.Need(fmt.Sprint("step ", last), func() bool { return f.reached() >= last })
	time.Sleep(lineDelay)
}

// write writes a file that the programs read, at once.
func (f *failing) write(name, text string) {
	f.T.Helper()
	path := filepath.Join(f.Dir, name)
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		f.T.Error(err)
	}
}

// reached returns the maximum step that rank 0 has written.
func (f *failing) reached() (maximum int) {
	for attempt := range len(f.plan.failures) + 1 {
		for _, now := range f.steps(attempt) {
			maximum = max(maximum, int(now.step))
		}
	}
	return maximum
}

// pid returns the process of a node in an attempt, or 0 if it has not begun.
func (f *failing) pid(what string, attempt, node int) int {
	data, _ := os.ReadFile(filepath.Join(f.Dir, fmt.Sprintf("%s.%d.%d", what, attempt, node)))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}

// kill ends the process that fails in an attempt.
func (f *failing) kill(number int, attempt predictedAttempt) {
	f.T.Helper()
	f.kills = append(f.kills, time.Now())
	pid := 0
	switch attempt.fault.kind {
	case health.RankFailed, health.DriverFailed:
		if attempt.fault.code > 0 {
			f.write(fmt.Sprintf("exit.%d.%d", number, attempt.node), strconv.Itoa(attempt.fault.code))
			return
		}
		pid = f.pid("program", number, attempt.node)
	case health.ServiceDied:
		pid = f.pid("service", attempt.run, attempt.node)
	default:
		var joined record.Joined
		name := fmt.Sprintf("%04d.joined", attempt.node)
		data, err := os.ReadFile(filepath.Join(f.runDir(attempt.run), "nodes", name))
		if err == nil {
			err = json.Unmarshal(data, &joined)
		}
		if pid = joined.PID; err != nil || pid == 0 {
			f.end()
			f.T.Fatalf("cannot find the daemon of node %d: %v", attempt.node, err)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		f.T.Errorf("cannot kill the %s of node %d: %v", attempt.fault.kind, attempt.node, err)
	}
}

func (f *failing) runDir(attempt int) string {
	name := "j"
	if attempt > 0 {
		name += fmt.Sprint("-a", attempt)
	}
	return filepath.Join(f.Dir, "logs", name)
}

// writtenStep is a step of rank 0.
type writtenStep struct {
	at   time.Duration // since 1970
	step float64
}

// steps returns the steps of an attempt that rank 0 has written.
func (f *failing) steps(attempt int) (all []writtenStep) {
	data, _ := os.ReadFile(filepath.Join(f.Dir, "steps"))
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
	t := f.T
	var last record.Result
	for number, attempt := range attempts {
		last = record.Result{}
		if attempt.goesOn {
			continue
		}
		data, err := os.ReadFile(filepath.Join(f.runDir(attempt.run), "result.json"))
		if attempt.fault.kind == health.DaemonDied && attempt.cause == "" {
			if !os.IsNotExist(err) {
				t.Errorf("attempt %d has a result although all daemons were killed (%v)", number, err)
			}
			continue
		}
		if err == nil {
			err = json.Unmarshal(data, &last)
		}
		cause, nodes := health.Kind(""), []int{attempt.node}
		if last.Cause != nil {
			cause, nodes = last.Cause.Kind, last.Cause.FaultyNodes()
		}
		next := number + 1
		if next == len(attempts) {
			next = 0
		}
		if err != nil || cause != attempt.cause || last.Code != attempt.code || last.NextAttempt != next ||
			!slices.Equal(nodes, []int{attempt.node}) {
			t.Errorf("attempt %d has the cause %q on nodes %v, the code %d and is followed by %d (%v), "+
				"not %q on node %d, %d and %d", number, cause, nodes, last.Code, last.NextAttempt, err,
				attempt.cause, attempt.node, attempt.code, next)
		}
	}
	if got, want := jobtest.ExitCode(f.Cmd.ProcessState), attempts[len(attempts)-1].code; got != want {
		t.Errorf("the job has ended with %d, not %d", got, want)
	}
	if _, err := os.Stat(f.runDir(len(attempts))); err == nil {
		t.Error("there is one attempt too many")
	}
	// The head has the progress of the job. If its daemon was killed, no one has.
	if end := attempts[len(attempts)-1]; end.fault.kind != health.DaemonDied || end.node != 0 {
		f.judgeProgress(len(attempts), last.Progress, took)
	}
	if left := f.Left(); len(left) > 0 {
		t.Errorf("still running: %v", left)
	}
	if t.Failed() {
		t.Logf("%+v\n%+v\n%s", f.plan, attempts, &f.Said)
	}
}

// lineDelay is how much later than its rank a daemon may see a step.
const lineDelay = 300 * time.Millisecond

// judgeProgress compares the progress with the steps that rank 0 has written. Those after a failure
// may be included, because rank 0 continues until it is ended.
func (f *failing) judgeProgress(attempts int, got *record.Progress, took time.Duration) {
	if f.reached() == 0 {
		if got != nil && got.Reports > 0 {
			f.T.Errorf("without a step, the progress is %+v", got)
		}
		return
	}
	if got == nil {
		f.T.Error("there is no progress")
		return
	}
	delay := lineDelay + f.maxDelay
	var all, certain time.Duration // the productive time of all steps, and of those before a failure
	var first, last time.Duration
	reached, known := 0.0, 0.0 // the maximum of all steps, and of those that the head must know
	for attempt := range attempts {
		failure := time.Duration(math.MaxInt64)
		if attempt < len(f.kills) {
			failure = time.Duration(f.kills[attempt].UnixNano())
		}
		steps := f.steps(attempt)
		for i, now := range steps {
			if i > 0 && now.step > reached {
				all += now.at - steps[i-1].at
				if now.at < failure {
					certain += now.at - steps[i-1].at
				}
			}
			if first == 0 {
				first = now.at
			}
			last = now.at
			reached = max(reached, now.step)
			if now.at < failure-delay {
				known = max(known, now.step)
			}
		}
	}
	tolerance := time.Duration(attempts) * delay
	if got.Productive < certain-tolerance || got.Productive > all+tolerance {
		f.T.Errorf("%s were productive, and by the ranks %s to %s, with a tolerance of %s",
			got.Productive, certain, all, tolerance)
	}
	if got.Elapsed > took || got.Elapsed < last-first-lineDelay {
		f.T.Errorf("the job took %s, by the test %s, and from the first step to the last %s",
			got.Elapsed, took, last-first)
	}
	if own := got.Productive.Seconds() / got.Elapsed.Seconds(); math.Abs(got.Goodput-own) > 1e-6 {
		f.T.Errorf("the goodput is %.3f, and not %.3f", got.Goodput, own)
	}
	if got.MaxStep > reached || got.MaxStep < known {
		f.T.Errorf("the maximum is step %v, and by the ranks %v, at least %v", got.MaxStep, reached, known)
	}
	f.T.Logf("productive %s, by the ranks %s to %s; elapsed %s, by the test %s; scheduled at most %s late",
		got.Productive, certain, all, got.Elapsed, took, f.maxDelay)
}
