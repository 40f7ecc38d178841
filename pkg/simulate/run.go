package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Simulate runs one job in the room, and returns when its daemons have ended. It returns the type
// of the file system as share. A job that failed is a Run with a Failure. The error is ctx's cause
// if ctx ended before the job, or the reason for which nothing could be run.
func Simulate(ctx context.Context, room *Room, cfg Config) (run Run, share string, err error) {
	local, err := os.MkdirTemp("", "bringupd-simulate-")
	if err != nil {
		return Run{}, "", fmt.Errorf("cannot make a directory for the daemons' private files: %v", err)
	}
	defer func() { _ = os.RemoveAll(local) }()
	said, err := os.Create(filepath.Join(local, "said"))
	if err != nil {
		return Run{}, "", fmt.Errorf("cannot keep what the daemons say: %v", err)
	}
	defer func() { _ = said.Close() }()
	j := newJob(room, cfg, said)
	run = j.simulate(ctx)
	if ctx.Err() != nil {
		return run, "", context.Cause(ctx)
	}
	share = j.explain(&run)
	return run, share, nil
}

// mostAtOnce is the maximum number of concurrent calls of all daemons together, because each call
// occupies a thread. It is more than the client of one machine sends to a server, and more than a
// server processes concurrently. Go gives up at 10,000 threads.
const mostAtOnce = 512

// job is one simulated job: its daemons, and the measurements.
type job struct {
	cfg     Config
	run     string    // its run directory
	said    *os.File  // receives all output of the daemons; its directory has their private files
	daemons []*player // in node order
	victim  *victim   // nil if no daemon dies
	over    string    // transport of the peer links
	clock   *clock
	machine machine

	ends  chan ended // receives the end of each daemon
	ended []ended    // ends that have been received

	notUp atomic.Int64  // number of daemons that are not up
	allUp chan struct{} // closed when all are up
	gate  gate
	world *world
}

// player is one simulated daemon.
type player struct {
	config.Config
	way     *way
	signals chan os.Signal // for interrupts that hasten its end; nil if it needs none

	// Written by the daemon itself, and read after all daemons have ended.
	upAt    time.Duration // from the start of all daemons
	upCalls count         // its calls until it was up; nil if it never was
}

// gate has the measurements at the opening of the gate. The head writes the other fields before it
// closes open.
type gate struct {
	open  chan struct{}
	at    time.Duration // from the start of all daemons
	calls []count       // calls of each daemon until then
}

// ended is the end of one daemon.
type ended struct {
	rank, code int
	at         time.Duration // from the start of all daemons
}

// newJob prepares the daemons of a job, but does not start them.
func newJob(room *Room, cfg Config, said *os.File) *job {
	j := &job{
		cfg: cfg, said: said, over: cfg.over(), victim: newVictim(cfg), clock: newClock(2*cfg.Join + cfg.Steady),
		ends: make(chan ended, cfg.Nodes), allUp: make(chan struct{}), gate: gate{open: make(chan struct{})},
	}
	j.world = newWorld(cfg, j.counts)
	j.notUp.Store(int64(cfg.Nodes))
	room.runs++
	// All daemons have the identity of a local job, with simulated host names.
	id := roles.Identity{
		Launcher: roles.LauncherLocal, Size: cfg.Nodes, Job: "nodes-" + strconv.Itoa(cfg.Nodes), Step: strconv.Itoa(room.runs),
		LaunchKey: filepath.Base(room.path), LocalSize: 1, GPUs: -1,
	}
	for rank := range cfg.Nodes {
		id.Hosts = append(id.Hosts, fmt.Sprintf("n%0*d", signal.IndexWidth(cfg.Nodes), rank))
	}
	j.run = filepath.Join(room.path, id.RunName())
	// All daemons share the simulated server and the limit of concurrent calls.
	delay, slots := cfg.delay(), make(chan struct{}, mostAtOnce)
	for rank := range cfg.Nodes {
		p := &player{way: newWay(j.clock.called, delay, slots)}
		// The daemon reports its milestones by the marks that it writes.
		p.way.marked = func(name string) { j.marked(rank, name) }
		if j.victim != nil && j.victim.rank == rank {
			p.way.victim = j.victim
		}
		p.Config = j.configure(room, id, rank, p.way)
		if rank == 0 || p.way.victim != nil {
			p.signals = make(chan os.Signal, 4)
			p.Signals = p.signals
		}
		j.daemons = append(j.daemons, p)
	}
	j.connect()
	return j
}

// configure returns the configuration of one daemon. As for "bringupd local", a directory that only
// this machine can see is sufficient. The daemon polls it as it would poll a real shared file
// system.
func (j *job) configure(room *Room, id roles.Identity, rank int, way *way) config.Config {
	id.Rank, id.Host = rank, id.Hosts[rank]
	world, played, argv := j.world.means(j.cfg)
	return config.Config{
		World: world, Driver: argv,
		Identity: id, LogDir: room.path, Program: j.cfg.Program,
		Framework: nothing{}, Lifeline: j.cfg.Lifeline, Times: j.cfg.times(),
		Deps: config.Deps{
			TempDir: filepath.Dir(j.said.Name()), Checks: healthy{rank},
			Address: func() (string, error) { return "127.0.0.1", nil },
			Access:  signal.Access{Meter: way.meter, FS: way, NoHints: true}, Simulation: played,
		},
		Output: config.Output{Streams: config.Streams{Out: j.said, Err: j.said}, JSONLog: true},
	}
}

// healthy are checks that pass at once. All nodes report the same hardware.
type healthy struct{ rank int }

var _ config.Checks = healthy{}

func (h healthy) AwaitReady(context.Context, func(check.Report)) check.Report {
	return check.Report{
		Version: check.ReportVersion, Rank: h.rank, Verdict: check.Pass,
		Findings:   []check.Finding{{ID: "gpu.count", Verdict: check.Pass, Observed: "8 of 8"}},
		Attributes: []check.Attribute{{ID: check.AttrGPUCount, Value: "8"}, {ID: check.AttrKernel, Value: "simulated"}},
	}
}

func (healthy) ApplyPolicy(findings []check.Finding) []check.Finding {
	return check.Policy{Mode: check.ModeAuto}.Apply(findings)
}

func (healthy) MaxDuration() time.Duration { return time.Second }

// nothing is a framework whose services are ready at once.
type nothing struct{}

var _ framework.Framework = nothing{}

func (nothing) Name() string { return "simulated" }

func (nothing) HasServices() bool { return true }

func (nothing) HeadService(node framework.Node) (*framework.Service, framework.Endpoint, error) {
	return nil, framework.Endpoint{Address: node.Address}, nil
}

func (nothing) WorkerService(framework.Node, framework.Endpoint) (*framework.Service, error) {
	return nil, nil
}

// marked records the time and the calls of a milestone when a daemon has written the mark of that
// name: the node is up, or the gate is open.
func (j *job) marked(rank int, name string) {
	since := j.clock.elapsed()
	switch name {
	case signal.NodeName(rank, j.cfg.Nodes, signal.StateServiceUp):
		p := j.daemons[rank]
		p.upAt, p.upCalls = since, p.way.meter.OpStats()
		if j.notUp.Add(-1) == 0 {
			close(j.allUp)
		}
	case signal.NameGateOpen:
		j.gate.at, j.gate.calls = since, j.counts()
		j.machine.gate = read()
		close(j.gate.open)
	}
}

// counts returns the calls so far of each daemon.
func (j *job) counts() []count {
	counts := make([]count, len(j.daemons))
	for rank, p := range j.daemons {
		counts[rank] = p.way.meter.OpStats()
	}
	return counts
}

// errEarly reports that a daemon ended before it was requested to.
var errEarly = errors.New("a daemon has ended unasked")

// simulate runs the job to its end.
func (j *job) simulate(ctx context.Context) Run {
	// The daemons' contexts do not end with ctx but only by the functions below, so that the daemons
	// end in an orderly way.
	workers, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	head, leaveHead := context.WithCancel(workers)
	defer leaveHead()
	stop := j.machine.watch()
	defer stop()

	// Bring the job up, and measure the steady state.
	j.start(head, workers)
	steady, err := j.live(ctx)
	wish := j.clock.elapsed()
	// Then end the job in the way that the configuration requires.
	before := tally(j.counts()...)
	var death *Death
	switch {
	case err == nil && j.victim != nil:
		death = j.outlive(ctx, leave)
	case err == nil:
		j.tell("the end")
		leaveHead()
	case errors.Is(err, errEarly):
		j.tell("a daemon has ended unasked: waiting for the others")
	default:
		j.tell("interrupted: all daemons leave")
	}
	// Wait for all daemons and for their last calls.
	j.gather(ctx, leave, func() bool { return len(j.ended) == len(j.daemons) })
	gone := j.clock.elapsed()
	j.settle()
	stop()
	run := j.sum()
	run.Steady, run.Death = steady, death
	switch code := j.code(); {
	case death != nil:
		run.Failure = judged(j.others())
	case code != 0 || err != nil:
		run.Failure = &Failure{Code: code, Codes: codesOf(j.ended)}
	default:
		run.End = End{Took: gone - wish, Calls: run.Whole.Calls - before.Calls, Peak: j.clock.peak(wish, gone)}
	}
	return run
}

// start starts all daemons. The head has its own context, because it is the first to be requested
// to end. The workers learn of that from the run directory.
func (j *job) start(head, workers context.Context) {
	begin := make(chan struct{})
	for rank, p := range j.daemons {
		role, ctx := roles.RoleWorker, workers
		if rank == 0 {
			role, ctx = roles.RoleHead, head
		}
		go func() {
			<-begin
			ctxutil.SleepContext(ctx, time.Duration(rand.Float64()*float64(j.cfg.Skew)))
			code := daemon.Run(ctx, p.Config, role).Code
			j.ends <- ended{rank, code, j.clock.elapsed()}
		}()
	}
	j.machine.start = read()
	j.clock.began = time.Now()
	close(begin)
}

// live waits until the gate is open and all nodes have reported that they are up. Then it measures
// the steady state. It returns errEarly if a daemon has ended, or ctx's cause.
func (j *job) live(ctx context.Context) (*Steady, error) {
	j.tell("bringing up")
	for _, milestone := range []<-chan struct{}{j.gate.open, j.allUp, j.world.met} {
		if err := j.await(ctx, milestone, nil); err != nil {
			return nil, err
		}
	}
	j.tell("the gate was open after " + textutil.MeasuredDuration(j.gate.at))
	span := j.cfg.Steady / 2
	if span == 0 {
		return nil, nil
	}
	j.tell("staying up for " + textutil.MeasuredDuration(2*span))
	if err := j.await(ctx, nil, time.After(span)); err != nil {
		return nil, err
	}
	began, before := time.Now(), j.counts()
	if err := j.await(ctx, nil, time.After(span)); err != nil {
		return nil, err
	}
	return steadyOf(time.Since(began), before, j.counts()), nil
}

// await waits for a milestone or for a time. It returns errEarly if a daemon ends before, and ctx's
// cause if ctx ends.
func (j *job) await(ctx context.Context, milestone <-chan struct{}, over <-chan time.Time) error {
	select {
	case <-milestone:
		return nil
	case <-over:
		return nil
	case e := <-j.ends:
		j.ended = append(j.ended, e)
		return errEarly
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// steadyOf returns the rates of calls between two counts. Their first elements belong to the head.
func steadyOf(took time.Duration, before, after []count) *Steady {
	rate := func(rank int) float64 { return float64(after[rank].sum()-before[rank].sum()) / took.Seconds() }
	s := &Steady{For: took, Head: rate(0)}
	for rank := range after {
		s.All += rate(rank)
	}
	if workers := len(after) - 1; workers > 0 {
		s.Worker = (s.All - s.Head) / float64(workers)
	}
	return s
}

// tell reports progress, if the configuration includes a function for that.
func (j *job) tell(what string) {
	if j.cfg.Told != nil {
		j.cfg.Told(what)
	}
}

// gather waits until enough daemons have ended. If ctx ends, or if they take longer than they
// should, it calls leave and interrupts them, so that they end at once.
func (j *job) gather(ctx context.Context, leave func(), enough func() bool) {
	// After ctx has ended once, do not react to it again.
	asked := ctx.Done()
	timer := time.NewTimer(j.patience())
	defer timer.Stop()
	if j.victim != nil && j.victim.isBuried() {
		timer.Reset(hurryPause) // all others have ended
	}
	for !enough() {
		select {
		case e := <-j.ends:
			j.ended = append(j.ended, e)
			if e.rank == 0 {
				timer.Reset(j.patience())
			}
			continue
		case <-asked:
			asked = nil
		case <-timer.C:
		}
		leave()
		// A second signal after a pause ends the head's grace periods.
		j.hurry()
		timer.Reset(hurryPause)
	}
}

// settle waits for calls that ended daemons have left in progress: files that such calls create
// would interfere with the removal of the directory. It gives up after settleTimeout if the shared
// file system hangs.
func (j *job) settle() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), settleTimeout, errRoom)
	defer cancel()
	for _, p := range j.daemons {
		p.way.meter.AwaitIdle(ctx)
	}
}

// settleTimeout is a few times the maximum latency that can be simulated.
const settleTimeout = 5 * mostLatency

// hurryPause is longer than the time within which a further signal is taken for a duplicate of the
// first.
const hurryPause = 2500 * time.Millisecond

// hurry interrupts the head and the victim, so that they end without grace periods.
func (j *job) hurry() {
	for _, p := range j.daemons {
		select {
		case p.signals <- os.Interrupt: // a nil channel blocks, so this selects default
		default:
		}
	}
}

// patience returns the maximum time that the workers take to end after the head has ended, and that
// the head takes after the request to end.
func (j *job) patience() time.Duration {
	times := j.cfg.times()
	return health.WorkerHeartbeatTiming(times.Peer, j.cfg.Nodes).MaxPollInterval + times.Peer + times.DriverGrace + times.StopGrace
}

// sum returns the measurements of the run. All daemons must have ended.
func (j *job) sum() Run {
	run := Run{Nodes: len(j.daemons), Lifelines: j.over, Gate: j.gate.at, Machine: j.machine.result(), Whole: tally(j.counts()...), World: j.world.seen(j.cfg, j.clock.began.Add(j.gate.at), j.gate.calls)}
	// Calls until the gate opened, if it did.
	if calls := j.gate.calls; calls != nil {
		run.Head, run.ToGate = tally(calls[0]), tally(calls...)
		run.WorkerToGate = differing(calls[1:]).Calls
		run.Peak = j.clock.peak(0, j.gate.at)
	}
	// Times and calls until each daemon was up, for those that were.
	var up []time.Duration
	var workers []count
	for rank, p := range j.daemons {
		if p.upCalls == nil {
			continue
		}
		up = append(up, p.upAt)
		if rank > 0 {
			workers = append(workers, p.upCalls)
		}
	}
	run.Up, run.Worker = spreadOf(up), differing(workers)
	return run
}

// codesOf counts the daemons by their exit codes.
func codesOf(all []ended) map[int]int {
	counts := make(map[int]int)
	for _, one := range all {
		counts[one.code]++
	}
	return counts
}

// code returns the exit code of the job: the head's or, if that is 0, the highest of all.
func (j *job) code() (highest int) {
	for _, one := range j.ended {
		if one.rank == 0 && one.code != 0 {
			return one.code
		}
		highest = max(highest, one.code)
	}
	return highest
}

// explain returns the type of the file system that the daemons used, and adds the reason of a
// failure, which it reads from the run directory or from the daemons' output.
func (j *job) explain(run *Run) (share string) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), j.cfg.Peer, errRoom)
	defer cancel()
	// Read the file system and the result from the run directory.
	dir, record, err := signal.OpenExisting(ctx, j.run, "this machine")
	if err == nil {
		share = record.FileSystem
	}
	var result signal.Result
	if err == nil && (run.Failure != nil || run.Death != nil) {
		err = dir.ReadRecord(ctx, "", signal.NameResult, &result)
	}
	if run.Death != nil && result.Cause != nil {
		run.Death.Kind, run.Death.Why = result.Cause.Kind, result.Cause.Message
	}
	if run.Failure == nil {
		return share
	}
	if err == nil && result.Cause != nil {
		run.Failure.Code, run.Failure.Word, run.Failure.Why = result.Code, result.Outcome, result.Cause.Message
		return share
	}
	// Without a cause in the result, search the daemons' output.
	run.Failure.Word = wordOf(run.Failure.Code)
	run.Failure.Why = "it left no cause"
	if said, err := os.ReadFile(j.said.Name()); err == nil {
		if why, told := firstError(said); told {
			run.Failure.Why = why
		}
	}
	return share
}

// wordOf returns the word for an exit code.
func wordOf(code int) string {
	for _, outcome := range health.OutcomeTable() {
		if outcome.Code == code {
			return outcome.Name
		}
	}
	return health.OutcomeOfKind(health.Internal).Name
}

// firstError returns the first error in the daemons' output, which consists of lines of JSON.
// Without an error, it returns the last line.
func firstError(said []byte) (what string, told bool) {
	for line := range bytes.Lines(said) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal(line, &entry) != nil {
			what, told = string(bytes.TrimSpace(line)), true
			continue
		}
		what, told = entry.Msg, true
		if entry.Level == "error" {
			break
		}
	}
	return what, told
}
