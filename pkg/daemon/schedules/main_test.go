// Package schedules runs the protocol of the daemons in thousands of interleavings: real daemons
// use a shared file system in memory, in which each call takes steps at random times, through
// mounts that return stale data, with crashes, stalls, signals and restarts in between. It checks
// the invariants of the run directory after every step and at the end. The package has tests only.
//
//	go test ./pkg/daemon/schedules -schedules=100000           # more than CI does
//	go test ./pkg/daemon/schedules -run=TestSchedules -seed=7  # one again
//	go test ./pkg/daemon/schedules -run=TestSchedules -seed=1 -schedules=200000 -shift=1
package schedules

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	seedFlag = flag.Uint64("seed", 0, "go through this schedule alone, or through so many from "+
		"it on; 0: from one on that is drawn, where -schedules says how many, and else from 1 on")
	shiftFlag = flag.Uint64("shift", 0, "draw the times of the steps as for the seed that is so "+
		"much higher: other interleavings of the same plans")
	countFlag = flag.Int("schedules", 0, "how many schedules to go through; 0: as many as CI does, or the one of -seed")
	traceFlag = flag.Bool("trace", false, "show every step, and what the daemons say")
	saidFlag  = flag.String("said", "", "for the test's own use: go through the schedules in "+
		"this process, and write there what the daemons say")
)

func TestMain(m *testing.M) {
	// The tests wait for child processes, which would sleep for a second at exit with the race
	// detector.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	goleak.VerifyTestMain(m)
}

// TestSchedules runs the schedules in separate processes, one per processor: on one processor the
// goroutines of a schedule run in an order that is nearly always the same, and a panic ends one
// process only.
func TestSchedules(t *testing.T) { testAll(t, planOf, usual) }

// testAll runs schedules that planOf draws, so many as CI does unless the flags say otherwise.
func testAll(t *testing.T, planOf func(seed, shift uint64) plan, usual int) {
	first, count := asked(usual)
	switch {
	case *saidFlag != "":
		goThrough(t, planOf, first, count)
		return
	case *traceFlag:
		trace(t, planOf(first, *shiftFlag))
		return
	}
	if *seedFlag == 0 {
		fmt.Printf("these schedules again: go test ./pkg/daemon/schedules -run=%s -seed=%d "+
			"-schedules=%d -shift=%d\n", t.Name(), first, count, *shiftFlag)
	}
	shares := min(runtime.NumCPU(), count)
	var all sync.WaitGroup
	for i := range shares {
		from, to := count*i/shares, count*(i+1)/shares
		all.Go(func() { goThroughAside(t, t.Name(), first+uint64(from), to-from, *shiftFlag) })
	}
	all.Wait()
}

// known are schedules that were bad once, with the reason.
var known = []struct {
	what        string
	seed, shift uint64
	test        string // empty: TestSchedules
}{
	{"a peer link that fell silent did not make a worker look", 597, 0, ""},
	{"so it was for all workers", 104427, 1, ""},
	{"the test took a worker that had just joined for one that holds a lifeline", 6791, 0, ""},
	{"the test took an interrupted spare for a cause, of which the job made nothing", 26867, 0, ""},
	{"the same, with more spares", 34983, 0, ""},
	{"the same, by a strike at a time of its own", 60286, 1, ""},
	{"the head did not wait for a spare that an old listing did not show", 303653, 0, ""},
	{"nor for one whose failure an old listing did not show", 2327, 0, ""},
	{"a dead worker that an old listing did not show was born anew", 3884, 1, ""},
	{"the head did not wait for a spare that joined at the end", 197299, 0, ""},
	{"a worker whose daemon ended while it connected was taken for dead", 30070, 0, ""},
	{"a worker that had claimed the end died before it told of it, and the others did not agree on one", 87759, 1, ""},
	{"a head that was cut off took the one node for lost that had a lifeline", 225360, 1, ""},
	{"the test took a head whose share hung for one that knew of the others' end", 5469, 1, ""},
	{"a worker whose looks at the log directory failed in passing looked again after ever " +
		"longer pauses", 44166512057, 0, ""},
	{"a head that could not list the aborts took itself for one that could not list who is done", 345924640225, 0, ""},
	{"a report was written again while the first attempt, not awaited, was in progress",
		447438269098, 0, ""},
	{"a lost node ended the run with 70 while the head read offers", 1061, 0, "TestJobs"},
	{"a node that came back after its loss went on", 566, 0, "TestJobs"},
	{"a node with a reset link was taken for dead", 423, 0, "TestJobs"},
	{"a process that was not ready in time was done", 540, 0, "TestJobs"},
	{"the head did not wait for the offer of a node that had not joined", 1619, 0, "TestJobs"},
	{"the test took an exit right before the loss of a node of its instance for a cause",
		392208589278, 0, "TestJobs"},
}

func TestKnown(t *testing.T) {
	for _, k := range known {
		t.Run(fmt.Sprintf("%d shifted by %d", k.seed, k.shift), func(t *testing.T) {
			t.Log(k.what)
			goThroughAside(t, cmp.Or(k.test, "TestSchedules"), k.seed, 1, k.shift)
		})
	}
}

// asked returns what the flags request. CI runs the same schedules each time: one in about ten
// thousand random schedules shows how two or three simultaneous faults affect the protocol. Such a
// case needs separate work and must not block other changes.
func asked(usual int) (first uint64, count int) {
	first, count = *seedFlag, *countFlag
	switch {
	case first > 0:
	case count > 0:
		first = 1 + rand.Uint64N(1<<40)
	default:
		first = 1
	}
	switch {
	case count > 0:
	case *seedFlag > 0:
		count = 1
	case testing.Short():
		count = usual / 50
	default:
		count = usual
	}
	return first, count
}

// goThroughAside runs schedules of a test in another process.
func goThroughAside(t *testing.T, test string, first uint64, count int, shift uint64) {
	t.Helper()
	said := filepath.Join(t.TempDir(), "said")
	run := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.timeout=0",
			"-seed="+strconv.FormatUint(first, 10), "-schedules="+strconv.Itoa(count),
			"-shift="+strconv.FormatUint(shift, 10), "-said="+said)
		cmd.Env = append(os.Environ(), "GOMAXPROCS="+processors, "GOTRACEBACK=all")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run()
	for again := 0; err != nil && detectorDied(out) && again < 2; again++ {
		t.Logf("schedules %d to %d are gone through again: %s", first, first+uint64(count)-1, out)
		out, err = run()
	}
	if err != nil {
		last, _ := os.ReadFile(said)
		t.Errorf("schedules %d to %d: %v\n%s\nthe last one: %s", first, first+uint64(count)-1, err,
			tail(out, 30000), tail(string(last), 10000))
	}
}

// detectorDied reports whether the race detector itself has failed, as it sometimes does in a
// bubble of testing/synctest (https://go.dev/issue/78156): by a check of its own, or by a fault in
// its code, which is not Go code. It has found no race in that case, and the schedules are valid.
func detectorDied(out string) bool {
	return strings.Contains(out, "ThreadSanitizer: CHECK failed") ||
		strings.Contains(out, "SIGSEGV: segmentation violation\nPC=")
}

// tail returns the end of a text, and its beginning if it is much longer.
func tail(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most/2] + "\n…\n" + text[len(text)-most/2:]
}

// tooLong is a time that no schedule takes: each takes milliseconds.
const tooLong = 2 * time.Minute

// fewBad is the number of bad schedules after which a process stops.
const fewBad = 3

func goThrough(t *testing.T, planOf func(seed, shift uint64) plan, first uint64, count int) {
	said, err := os.Create(*saidFlag)
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	stage := stage{t: t, tempDir: t.TempDir(), jobDir: t.TempDir(), said: said}
	bad := 0
	for seed := first; seed < first+uint64(count) && bad < fewBad; seed++ {
		// Time stands still in a bubble that waits for an event outside of it.
		watchdog := time.AfterFunc(tooLong, func() { panic(fmt.Sprintf("schedule %d hangs", seed)) })
		v := stage.play(planOf(seed, *shiftFlag))
		watchdog.Stop()
		if v.bad() {
			bad++
			t.Errorf("again with: go test ./pkg/daemon/schedules -run=%s -seed=%d -shift=%d "+
				"-args -trace\n%v", t.Name(), seed, *shiftFlag, v)
		}
	}
	if left, err := os.ReadDir(stage.tempDir); err != nil || len(left) > 0 {
		t.Errorf("the daemons have left %v in the temporary directory (%v)", left, err)
	}
}

// trace prints a schedule.
func trace(t *testing.T, p plan) {
	runtime.GOMAXPROCS(1)
	stage := stage{t: t, tempDir: t.TempDir(), jobDir: t.TempDir(), said: os.Stderr, tracing: true}
	v := stage.play(p)
	t.Log(v)
	if v.bad() {
		t.Fail()
	}
}
