package simulate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// simulated runs one job with a time limit.
func simulated(t *testing.T, room *ScratchDir, cfg Config) (JobResult, string) {
	t.Helper()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), ceiling, errors.New("the ceiling of the test"))
	defer cancel()
	run, share, err := SimulateJob(ctx, room, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return run, share
}

func TestSimulate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		nodes  int
		change func(*Config)
	}{
		{"a head alone", 1, func(*Config) {}},
		{"two", 2, func(*Config) {}},
		{"some", 9, func(*Config) {}},
		{"far away", 5, func(c *Config) { c.Latency, c.Jitter = time.Millisecond, time.Millisecond }},
		{"a slow server", 5, func(c *Config) { c.Rate = 2000 }},
		{"one after the other", 5, func(c *Config) { c.Skew = 50 * time.Millisecond }},
		{"ranks that meet", 16, func(c *Config) { c.Ranks, c.Fences = 4, 4 }},
		{"a while", 5, func(c *Config) { c.Steady = 2 * time.Second }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			room := newRoom(t)
			cfg := few(tc.nodes)
			tc.change(&cfg)
			run, share := simulated(t, room, cfg)
			if run.Failure != nil {
				t.Fatalf("it failed: %+v", run.Failure)
			}
			plausible(t, cfg, run)
			if share == "" {
				t.Error("it doesn't tell on what file system")
			}
			dir := filepath.Join(room.Path(), names(t, room.Path())[1])
			if nodes := names(t, filepath.Join(dir, signal.NodesDir)); !slices.Contains(nodes, signal.NodeName(tc.nodes-1, tc.nodes, record.StateDone)) {
				t.Errorf("the last node has not told that it is done: %v", nodes)
			}
		})
	}
}

// plausible checks the conditions that hold for every successful job.
func plausible(t *testing.T, cfg Config, run JobResult) {
	t.Helper()
	workers := int64(cfg.Nodes - 1)
	if run.Nodes != cfg.Nodes || run.Gate <= 0 || run.Up.Min <= 0 || run.Up.Max < run.Up.P50 || run.End.Took <= 0 {
		t.Errorf("times: %+v", run)
	}
	if run.ToGate.Calls < run.Head.Calls+workers*run.WorkerToGate.Min || run.ToGate.Calls > run.Head.Calls+workers*run.WorkerToGate.Max {
		t.Errorf("%d calls of all, %d of the head, and of %d workers %+v", run.ToGate.Calls, run.Head.Calls, workers, run.WorkerToGate)
	}
	for name, tally := range map[string]CallTotals{"head": run.Head, "to the gate": run.ToGate, "whole": run.Whole} {
		var sum int64
		for _, n := range tally.ByKind {
			sum += n
		}
		if sum != tally.Calls || sum == 0 {
			t.Errorf("%s: %d calls, and %d by kind", name, tally.Calls, sum)
		}
	}
	if workers > 0 && (run.Worker.Calls.Min < 10 || run.Worker.ByKind["open"].Min == 0) {
		t.Errorf("a worker's calls until it was up: %+v", run.Worker)
	}
	if run.Whole.Calls < run.ToGate.Calls+run.End.Calls || run.End.Calls < int64(cfg.Nodes) || run.Peak < run.ToGate.Calls/100 {
		t.Errorf("calls: %+v, peak %d, end %+v", run.Whole, run.Peak, run.End)
	}
	if (run.World != nil) != (cfg.Ranks != 0) {
		t.Errorf("%d ranks: %+v", cfg.Ranks, run.World)
	}
	// Ranks may enter their first fence before the head has noted that the gate is open.
	if w := run.World; w != nil && (w.Met <= 0 || w.Fence.Min <= 0 || w.Fence.Max > run.Gate+w.Met || w.Calls.Calls > run.Whole.Calls-run.ToGate.Calls) {
		t.Errorf("ranks that meet: %+v", w)
	}
	// Each worker reads the job and the plan of ranks, the latter before or after the calls up to the
	// gate are counted.
	if w := run.World; w != nil && run.ToGate.ByKind["read"]+w.Calls.ByKind["read"] < 2*workers {
		t.Errorf("ranks that meet: %+v after %+v", w, run.ToGate)
	}
	if (run.Steady != nil) != (cfg.Steady != 0) {
		t.Errorf("steady for %s: %+v", cfg.Steady, run.Steady)
	}
	if s := run.Steady; s != nil && (s.For < cfg.Steady/2 || s.Worker <= 0 || s.Head <= 0 || s.All < s.Worker+s.Head) {
		t.Errorf("steady for %s: %+v", cfg.Steady, s)
	}
	if m := run.Machine; m.Memory < 1<<20 || m.Heap <= 0 || m.Heap > m.Memory || m.Goroutines < int64(cfg.Nodes) || m.Processor <= 0 || m.Busy <= 0 {
		t.Errorf("machine: %+v", m)
	}
}

// TestCallsDoNotGrowWithRanks verifies that data exchanged by ranks causes no file operations; the
// number of polls depends on the time.
func TestCallsDoNotGrowWithRanks(t *testing.T) {
	calls := func(ranks int) map[string]int64 {
		cfg := few(4)
		cfg.Ranks, cfg.Fences, cfg.LinkMode = ranks, 10, config.LinkOn
		run, _ := simulated(t, newRoom(t), cfg)
		if run.Failure != nil {
			t.Fatalf("it failed: %+v", run.Failure)
		}
		for _, kind := range []string{"list", "open", "close"} {
			delete(run.Whole.ByKind, kind)
		}
		return run.Whole.ByKind
	}
	few, many := calls(1), calls(16)
	for kind, n := range many { // the batching of writes differs
		if n > few[kind]+few[kind]/2+4 {
			t.Errorf("%d times %s with 16 ranks a node, and %d times with one", n, kind, few[kind])
		}
	}
	if none := calls(0); many["read"] > none["read"]+4+2 || many["write"] > none["write"]+4+4 {
		t.Errorf("calls without ranks: %v; with them: %v", none, many)
	}
}

// TestLatencyCounts verifies that added latency changes the times and not the numbers of calls.
func TestLatencyCounts(t *testing.T) {
	cfg := few(3)
	cfg.Latency = 20 * time.Millisecond
	run, _ := simulated(t, newRoom(t), cfg)
	// The head alone makes a dozen consecutive calls before a worker can see anything.
	if run.Gate < 12*cfg.Latency {
		t.Errorf("the gate opened after %s, with %s added to each call", run.Gate, cfg.Latency)
	}
}

// TestDeath verifies that a death ends the job and that all other nodes report the same.
func TestDeath(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	for _, tc := range []struct {
		who      string
		lifeline config.LinkMode
		memory   bool
		kind     health.Kind
	}{
		{WorkerDies, config.LinkOff, false, health.PeerLost},
		{HeadDies, config.LinkOff, false, health.PeerLost},
		{WorkerDies, config.LinkOn, false, health.DaemonDied},
		{HeadDies, config.LinkOn, false, health.DaemonDied},
		{WorkerDies, config.LinkOn, true, health.DaemonDied},
		{HeadDies, config.LinkOn, true, health.DaemonDied},
	} {
		t.Run(fmt.Sprintf("%s, peer link %s, memory %t", tc.who, tc.lifeline, tc.memory), func(t *testing.T) {
			room := newRoom(t)
			cfg := few(4)
			cfg.Peer, cfg.Death, cfg.LinkMode = 2*time.Second, tc.who, tc.lifeline
			// While the gate opens, the victim has unread data, so its kernel resets the connection instead
			// of closing it.
			cfg.Steady = 500 * time.Millisecond
			if tc.memory {
				scarce(t, uint64(filesPerNode*cfg.Nodes+otherFiles))
			}
			run, _ := simulated(t, room, cfg)
			who, d := tc.who, run.Death
			if run.Failure != nil || d == nil {
				t.Fatalf("it failed: %+v, %+v", run.Failure, d)
			}
			victim := map[string]int{WorkerDies: 2, HeadDies: 0}[who]
			if d.Rank != victim || d.Took.Min <= 0 || d.Took.Max < d.Took.P50 || d.Kind != string(tc.kind) || d.Why == "" || d.Calls == 0 || d.Processor <= 0 {
				t.Errorf("the death: %+v", d)
			}
			if run.End.Took != 0 {
				t.Errorf("it ended in order, too: %+v", run.End)
			}
			dir := filepath.Join(room.Path(), names(t, room.Path())[1])
			nodes := names(t, filepath.Join(dir, signal.NodesDir))
			for node := range cfg.Nodes {
				if done := slices.Contains(nodes, signal.NodeName(node, cfg.Nodes, record.StateDone)); done == (node == victim) {
					t.Errorf("node %d has told that it is done: %t; all names: %v", node, done, nodes)
				}
			}
		})
	}
}

// scarce limits this process's open files for the duration of a test.
func scarce(t *testing.T, files uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	fewer := syscall.Rlimit{Cur: files, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &fewer); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	})
}

func TestOver(t *testing.T) {
	for _, tc := range []struct {
		name  string
		nodes int
		files uint64
		want  string
	}{
		{"enough for all", 1024, 6*1024 + 64, transportTCP},
		{"one too few", 1024, 6*1024 + 63, transportMemory},
		{"hardly any", 4096, 20, transportMemory},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := transportWithin(tc.nodes, filesPerLink, tc.files); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
	if got := (Config{Nodes: 2, LinkMode: config.LinkOff}).chooseTransport(); got != transportNone {
		t.Errorf("without peer links: %s", got)
	}
	if got := (Config{Nodes: 1}).chooseTransport(); got != transportNone {
		t.Errorf("alone: %s", got)
	}
}

// TestJudged verifies that nodes that do not end as the death requires are reported.
func TestJudged(t *testing.T) {
	for _, tc := range []struct {
		name  string
		codes []int
		want  int // 0: no failure
	}{
		{"all alike", []int{76, 66, 76, 76}, 0},
		{"an orderly end", []int{0, 76, 0, 0}, -1},
		{"one of them otherwise", []int{76, 0, 76, 66}, 66},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var others []daemonEnd
			for node, code := range tc.codes {
				others = append(others, daemonEnd{node: node, code: code})
			}
			got := checkSurvivors(slices.Delete(others, 1, 2))
			if (got == nil) != (tc.want == 0) || tc.want > 0 && (got.Code != tc.want || got.Codes[76] != 2) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestSameRoom verifies that several jobs in one scratch directory are independent.
func TestSameRoom(t *testing.T) {
	room := newRoom(t)
	for range 2 {
		if run, _ := simulated(t, room, few(2)); run.Failure != nil {
			t.Fatalf("it failed: %+v", run.Failure)
		}
	}
}

func TestFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, room *ScratchDir, cfg *Config)
		code  int
		word  string
		why   string // part of it
	}{
		{"the room is a file", func(t *testing.T, room *ScratchDir, _ *Config) {
			if err := errors.Join(os.Remove(room.Path()), os.WriteFile(room.Path(), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}, 66, "share", "it is not a directory"},
		{"somebody else can write to it", func(t *testing.T, room *ScratchDir, _ *Config) {
			if err := os.Chmod(room.Path(), 0o777); err != nil {
				t.Fatal(err)
			}
		}, 66, "share", "its mode is 0777"},
		{"it takes longer than they wait", func(_ *testing.T, _ *ScratchDir, cfg *Config) {
			cfg.JoinTimeout, cfg.Latency = time.Second, 900*time.Millisecond
		}, 66, "share", "the shared file system has not responded for "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			room := newRoom(t)
			cfg := few(3)
			cfg.Peer = 2 * time.Second // a lost node is not waited for longer than this
			tc.spoil(t, room, &cfg)
			run, _ := simulated(t, room, cfg)
			f := run.Failure
			if f == nil || f.Code != tc.code || f.Word != tc.word || !strings.Contains(f.Why, tc.why) || run.Gate != 0 {
				t.Errorf("got %+v, want %d, %s, %q; the run: %+v", f, tc.code, tc.word, tc.why, run)
			}
		})
	}
}

// TestInterrupted verifies that, wherever a simulation is interrupted, the daemons end and the
// scratch directory can be removed.
func TestInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	for _, when := range []string{"bringing up", "the gate opened", "staying up"} {
		t.Run(when, func(t *testing.T) {
			room := newRoom(t)
			cfg := few(4)
			cfg.Steady, cfg.Latency = time.Minute, 5*time.Millisecond
			why := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var once sync.Once
			cfg.Progress = func(what string) {
				if strings.HasPrefix(what, when) {
					once.Do(func() { cancel(why) })
				}
			}
			began := time.Now()
			_, _, err := SimulateJob(ctx, room, cfg)
			if !errors.Is(err, why) {
				t.Errorf("got %v, want %v", err, why)
			}
			if took := time.Since(began); took > ceiling/2 {
				t.Errorf("it took %s", took)
			}
			if err := room.Remove(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFirstError(t *testing.T) {
	const (
		info  = `{"level":"info","msg":"created the run directory"}` + "\n"
		warn  = `{"level":"warn","msg":"a sandbox is lost"}` + "\n"
		cause = `{"level":"error","msg":"cannot reach the head"}` + "\n"
	)
	for _, tc := range []struct{ name, said, want string }{
		{"nothing", "", ""},
		{"an error between others", info + cause + warn, "cannot reach the head"},
		{"two errors", cause + `{"level":"error","msg":"another"}` + "\n", "cannot reach the head"},
		{"no error", info + warn, "a sandbox is lost"},
		{"what is no JSON", "bringupd: cannot read /proc\n", "bringupd: cannot read /proc"},
		{"cut short", info + `{"level":"err`, `{"level":"err`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, told := findFirstError([]byte(tc.said)); got != tc.want || told != (tc.want != "") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// counted returns a daemon's calls of two kinds.
func counted(open, read int64) callCounts {
	return callCounts{{Op: signal.OpOpen, Calls: open}, {Op: signal.OpRead, Calls: read}}
}

func TestSteadyOf(t *testing.T) {
	before := []callCounts{counted(1, 1), counted(2, 0), counted(5, 5)}
	after := []callCounts{counted(11, 11), counted(5, 3), counted(10, 6)}
	want := SteadyLoad{For: 2 * time.Second, Head: 10, Worker: 3, All: 16}
	if got := *steadyLoad(2*time.Second, before, after); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := steadyLoad(time.Second, before[:1], after[:1]); got.Worker != 0 || got.All != got.Head {
		t.Errorf("without workers: %+v", got)
	}
}

func TestCounts(t *testing.T) {
	c := newCallClock(time.Second)
	c.began = time.Now()
	calls := []struct {
		rank int
		op   signal.Op
	}{{0, signal.OpOpen}, {0, signal.OpOpen}, {0, signal.OpClose}, {2, signal.OpStat}}
	ways := []*simulatedShare{newSimulatedShare(c.countCall, nil, nil), newSimulatedShare(c.countCall, nil, nil), newSimulatedShare(c.countCall, nil, nil)}
	slots := make(chan struct{}, len(calls))
	for _, call := range calls {
		ways[call.rank].slots = slots
		if _, err := ways[call.rank].BeginCall(call.op, ""); err != nil {
			t.Fatal(err)
		}
	}
	j := &simulatedJob{clock: c}
	for _, w := range ways {
		j.daemons = append(j.daemons, &simDaemon{share: w})
	}
	all := j.countCalls()
	if got := sumCounts(all...); got.Calls != 4 || got.ByKind["open"] != 2 || len(got.ByKind) != 3 {
		t.Errorf("all: %+v", got)
	}
	if got := sumCounts(all[0]); got.Calls != 3 || got.ByKind["stat"] != 0 {
		t.Errorf("node 0: %+v", got)
	}
	each := callDistribution(all[1:])
	if each.Calls != (Percentiles[int64]{0, 0, 1, 1}) || len(each.ByKind) != 1 || each.ByKind["stat"].Max != 1 {
		t.Errorf("the others: %+v", each)
	}
	if got := c.peakRate(0, time.Second); got != 40 {
		t.Errorf("four calls within a moment are %d a second in the busiest tenth", got)
	}
	// Calls that occur later than expected are counted, too.
	c.began = time.Now().Add(-time.Hour)
	c.countCall()
	if got := c.bins[len(c.bins)-1].Load(); got != 1 {
		t.Errorf("a late call: %d", got)
	}
}
