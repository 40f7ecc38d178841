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

// Simulate runs one job in the room, and returns when its daemons have ended. It
// tells on what file system they met. A job that failed is a Run with a Failure;
// the error is ctx's cause where ctx ended before the job, or says why nothing
// could be run.
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

// mostAtOnce bounds the calls under way at once, of all daemons together: each
// holds a thread. It is more than one machine's client sends to a server, and
// more than a server works on; Go gives up at 10,000 threads.
const mostAtOnce = 512

// job is one simulated job: its daemons, and what is seen of them.
type job struct {
	cfg     Config
	run     string    // its run directory
	said    *os.File  // all that the daemons say, in a directory for their private ones
	daemons []*player // by rank
	victim  *victim   // nil: nobody dies
	over    string    // what the lifelines are held over
	clock   *clock
	machine machine

	ends  chan ended // one of each daemon
	ended []ended    // those that were taken in

	notUp atomic.Int64  // how many daemons are not
	allUp chan struct{} // closed when all are
	gate  gate
	world *world
}

// player is one simulated daemon.
type player struct {
	config.Config
	way     *way
	signals chan os.Signal // that it can be hurried by; nil: it need not be

	// It writes these itself, and they are read when all have ended.
	upAt    time.Duration // from the start of all
	upCalls count         // by how many calls it was up; nil: it never was
}

// gate is what is seen of the gate. The head writes all else before it closes open.
type gate struct {
	open  chan struct{}
	at    time.Duration // from the start of all
	calls []count       // of each daemon until then
}

// ended is one daemon's end.
type ended struct {
	rank, code int
	at         time.Duration // from the start of all
}

func newJob(room *Room, cfg Config, said *os.File) *job {
	j := &job{
		cfg: cfg, said: said, over: cfg.over(), victim: newVictim(cfg), clock: newClock(2*cfg.Join + cfg.Steady),
		ends: make(chan ended, cfg.Nodes), allUp: make(chan struct{}), gate: gate{open: make(chan struct{})},
	}
	j.world = newWorld(cfg, j.counts)
	j.notUp.Store(int64(cfg.Nodes))
	room.runs++
	id := roles.Identity{
		Launcher: roles.LauncherLocal, Size: cfg.Nodes, Job: "nodes-" + strconv.Itoa(cfg.Nodes), Step: strconv.Itoa(room.runs),
		LaunchKey: filepath.Base(room.path), LocalSize: 1, GPUs: -1,
	}
	for rank := range cfg.Nodes {
		id.Hosts = append(id.Hosts, fmt.Sprintf("n%0*d", signal.IndexWidth(cfg.Nodes), rank))
	}
	j.run = filepath.Join(room.path, id.RunName())
	delay, slots := cfg.delay(), make(chan struct{}, mostAtOnce)
	for rank := range cfg.Nodes {
		p := &player{way: newWay(j.clock.called, delay, slots)}
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

// configure is a rank's daemon. A share that lives on this machine alone will
// do, as for "bringupd local", and is looked at as one that doesn't.
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

// healthy are checks that find nothing wrong, at once: all nodes are of one kind.
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

// nothing is a framework whose services are up at once.
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

// marked notes when a daemon has come how far, and by how many calls: it has made
// a mark of that name.
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

// counts are the calls so far of each daemon.
func (j *job) counts() []count {
	counts := make([]count, len(j.daemons))
	for rank, p := range j.daemons {
		counts[rank] = p.way.meter.OpStats()
	}
	return counts
}

// errEarly says that a daemon has ended that had not been told to.
var errEarly = errors.New("a daemon has ended unasked")

// simulate runs the job to its end.
func (j *job) simulate(ctx context.Context) Run {
	// The daemons' contexts end by our wish alone: theirs is an orderly end.
	workers, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	head, leaveHead := context.WithCancel(workers)
	defer leaveHead()
	stop := j.machine.watch()
	defer stop()

	j.start(head, workers)
	steady, err := j.live(ctx)
	wish := j.clock.elapsed()
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

// start has all daemons begin, the head under a context of its own: it is the
// first to be told to leave, and the others hear of it by the run directory.
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

// live waits for the gate and until all nodes have said that they are up, and
// measures what comes after it. Its error is errEarly, or ctx's cause.
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

// await waits for a milestone or a time.
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

// steadyOf is what was called in the time between two counts, rank 0's first.
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

func (j *job) tell(what string) {
	if j.cfg.Told != nil {
		j.cfg.Told(what)
	}
}

// gather waits until enough daemons have ended. Where ctx ends, or they take
// longer than they should, leave has them end at once.
func (j *job) gather(ctx context.Context, leave func(), enough func() bool) {
	asked := ctx.Done()
	timer := time.NewTimer(j.patience())
	defer timer.Stop()
	if j.victim != nil && j.victim.isBuried() {
		timer.Reset(hurryPause) // all others have gone
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
		// A second signal some time after the first ends the head's graces.
		j.hurry()
		timer.Reset(hurryPause)
	}
}

// settle waits for the calls that daemons have left behind under way: what they
// make would be in the way of who removes the directory. A share that hangs is
// not waited for.
func (j *job) settle() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), settleTimeout, errRoom)
	defer cancel()
	for _, p := range j.daemons {
		p.way.meter.AwaitIdle(ctx)
	}
}

// settleTimeout is a few times what a call may take that is to be simulated.
const settleTimeout = 5 * mostLatency

// hurryPause is longer than a further signal is taken for the echo of one.
const hurryPause = 2500 * time.Millisecond

func (j *job) hurry() {
	for _, p := range j.daemons {
		select {
		case p.signals <- os.Interrupt: // nil: never
		default:
		}
	}
}

// patience is how long the others take at most once the head has left, and the
// head once it was told to.
func (j *job) patience() time.Duration {
	times := j.cfg.times()
	return health.WorkerHeartbeatTiming(times.Peer, j.cfg.Nodes).MaxPollInterval + times.Peer + times.DriverGrace + times.StopGrace
}

// sum is what was seen of the daemons, which have ended.
func (j *job) sum() Run {
	run := Run{Nodes: len(j.daemons), Lifelines: j.over, Gate: j.gate.at, Machine: j.machine.result(), Whole: tally(j.counts()...), World: j.world.seen(j.cfg, j.clock.began.Add(j.gate.at), j.gate.calls)}
	if calls := j.gate.calls; calls != nil {
		run.Head, run.ToGate = tally(calls[0]), tally(calls...)
		run.WorkerToGate = differing(calls[1:]).Calls
		run.Peak = j.clock.peak(0, j.gate.at)
	}
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

// code is the job's: the head's, or where it ended well the highest of all.
func (j *job) code() (highest int) {
	for _, one := range j.ended {
		if one.rank == 0 && one.code != 0 {
			return one.code
		}
		highest = max(highest, one.code)
	}
	return highest
}

// explain tells on what file system the daemons met, and fills in why a run
// failed, as its own directory tells it.
func (j *job) explain(run *Run) (share string) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), j.cfg.Peer, errRoom)
	defer cancel()
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
	run.Failure.Word = wordOf(run.Failure.Code)
	run.Failure.Why = "it left no cause"
	if said, err := os.ReadFile(j.said.Name()); err == nil {
		if why, told := firstError(said); told {
			run.Failure.Why = why
		}
	}
	return share
}

// wordOf is the word of an exit code.
func wordOf(code int) string {
	for _, outcome := range health.OutcomeTable() {
		if outcome.Code == code {
			return outcome.Name
		}
	}
	return health.OutcomeOfKind(health.Internal).Name
}

// firstError is the first error of what the daemons have said, by lines of
// JSON, or the last line where none is one.
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
