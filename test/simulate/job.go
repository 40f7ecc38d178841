package simulate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Run runs one job in dir, an absolute path of a directory that only the user can write to, and
// returns when its daemons have ended. A job that failed is a Result with a Failure. The error is
// ctx's cause if ctx ended before the job, or the reason for which nothing could be run.
func Run(ctx context.Context, dir string, cfg Config) (result Result, err error) {
	if err := cfg.Validate(); err != nil {
		return result, err
	}
	private, err := os.MkdirTemp("", "simulate-")
	if err != nil {
		return result, err
	}
	defer func() { _ = os.RemoveAll(private) }()
	output, err := os.Create(filepath.Join(private, "output"))
	if err != nil {
		return result, err
	}
	defer func() { _ = output.Close() }()
	j := newSimulatedJob(dir, cfg, output)
	result = j.runToEnd(ctx)
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	j.addCause(&result)
	return result, nil
}

// simulatedJob is one simulated job: its daemons, and the measurements.
type simulatedJob struct {
	cfg    Config
	runDir string
	// output receives all output of the daemons; its directory has their private files.
	output  *os.File
	daemons []*simDaemon // in node order
	// interrupts receives signals that hasten the end of the head.
	interrupts chan os.Signal
	slots      chan struct{}
	clock      *callClock
	trace      *callTrace // nil if the calls are not traced

	ends  chan daemonEnd // receives the end of each daemon
	ended []daemonEnd    // ends that have been received

	pendingUp atomic.Int64  // number of daemons that are not up
	allUp     chan struct{} // closed when all are up
	gate      gateMeasurements
	world     *rankWorld
	roles     *simulatedRoles // nil if the job has none
}

// simDaemon is one simulated daemon.
type simDaemon struct {
	deps.Config
	share *simulatedShare

	// upAt and upCalls are its time since the start of all daemons and its calls when it was up. The
	// daemon writes them, and they are read after all daemons have ended.
	upAt    time.Duration
	upCalls callCounts
}

// gateMeasurements has the measurements at the opening of the gate. The head writes the other
// fields before it closes open.
type gateMeasurements struct {
	open      chan struct{}
	at        time.Duration // from the start of all daemons
	calls     []callCounts  // calls of each daemon until then
	processor time.Duration // processor time until then
}

// daemonEnd is the end of one daemon.
type daemonEnd struct {
	node, code int
	at         time.Duration // from the start of all daemons
}

// newSimulatedJob prepares the daemons of a job, but does not start them.
func newSimulatedJob(dir string, cfg Config, output *os.File) *simulatedJob {
	j := &simulatedJob{
		cfg: cfg, output: output, interrupts: make(chan os.Signal, 4),
		slots: make(chan struct{}, maxConcurrentCalls), clock: newCallClock(2 * cfg.JoinTimeout),
		ends: make(chan daemonEnd, cfg.Nodes), allUp: make(chan struct{}),
		gate: gateMeasurements{open: make(chan struct{})}, roles: newSimulatedRoles(cfg),
	}
	j.world = newRankWorld(cfg, j.countCalls)
	if cfg.Trace {
		j.trace = new(callTrace)
	}
	j.pendingUp.Store(int64(cfg.Nodes))
	if j.roles != nil {
		j.pendingUp.Store(int64(j.roles.nodesWithInstances()))
	}
	if cfg.DriverAlone || j.pendingUp.Load() == 0 {
		close(j.allUp)
	}
	// All daemons have the identity of a local job, with simulated host names.
	id := launcher.Identity{
		Launcher: launcher.LauncherLocal, Size: cfg.Nodes, Job: fmt.Sprint("nodes-", cfg.Nodes), Step: "0",
		LaunchKey: filepath.Base(dir), LocalSize: 1, GPUs: -1,
	}
	for node := range cfg.Nodes {
		id.Hosts = append(id.Hosts, fmt.Sprintf("n%0*d", signal.IndexWidth(cfg.Nodes), node))
	}
	j.runDir = filepath.Join(dir, id.RunName())
	for node := range cfg.Nodes {
		d := &simDaemon{share: j.newSimulatedShare(node)}
		d.Config = j.daemonConfig(dir, id, node, d.share)
		d.Network = peerlink.TCP{}
		if node == 0 {
			d.Signals = j.interrupts
		}
		j.daemons = append(j.daemons, d)
	}
	return j
}

// daemonConfig returns the configuration of one daemon. As for "bringupd local", a directory that
// only this machine can see is sufficient. The daemon polls it as it would poll a real shared file
// system.
func (j *simulatedJob) daemonConfig(dir string, id launcher.Identity, node int, share *simulatedShare) deps.Config {
	id.NodeIndex, id.Host = node, id.Hosts[node]
	cfg := deps.Config{Config: config.Config{
		Identity: id, LogDir: dir, Program: "simulate",
		Framework: instantFramework{}, Lifeline: j.cfg.LinkMode, Times: j.cfg.daemonTimeouts(),
		Output:  config.Output{Streams: config.Streams{Out: j.output, Err: j.output}, JSONLog: true},
		Process: config.Process{TempDir: filepath.Dir(j.output.Name())},
	}, Set: deps.Set{
		Checks: passingChecks{node},
		Address: func() (launcher.NodeAddress, error) {
			return launcher.NodeAddress{Address: "127.0.0.1"}, nil
		},
		Access: signal.Access{Meter: share.meter, FS: share, NoHints: true},
	}}
	if j.cfg.DriverAlone {
		cfg.Framework = framework.None{}
	}
	j.world.addTo(&cfg)
	j.roles.addTo(j.cfg, &cfg)
	return cfg
}

// passingChecks are checks that pass at once. All nodes report the same hardware.
type passingChecks struct{ node int }

func (h passingChecks) AwaitReady(context.Context, func(check.Report)) check.Report {
	return check.Report{
		Version: check.ReportVersion, NodeIndex: h.node, Verdict: check.Pass,
		Findings:   []check.Finding{{ID: "gpu.count", Verdict: check.Pass, Observed: "8 of 8"}},
		Attributes: []check.Attribute{{ID: check.AttrGPUCount, Value: "8"}},
	}
}

func (passingChecks) ApplyPolicy(findings []check.Finding) []check.Finding {
	return check.Policy{Mode: check.ModeAuto}.Apply(findings)
}

func (passingChecks) MaxDuration() time.Duration { return time.Second }

// instantFramework is a framework whose services are ready at once.
type instantFramework struct{}

func (instantFramework) Name() string { return "simulated" }

func (instantFramework) HasServices() bool { return true }

func (instantFramework) HeadService(node framework.Node) (*framework.Service, framework.Endpoint, error) {
	return nil, framework.Endpoint{Address: node.Address}, nil
}

func (instantFramework) WorkerService(framework.Node, framework.Endpoint) (*framework.Service, error) {
	return nil, nil
}

// noteMilestone records the time and the calls of a milestone when a daemon has written the mark of
// that name: the node is up, or the gate is open.
func (j *simulatedJob) noteMilestone(node int, name string) {
	since := j.clock.sinceStart()
	isUp := name == signal.NodeName(node, j.cfg.Nodes, record.StateServiceUp)
	if j.roles != nil {
		isUp = j.roles.isUp(node, name)
	}
	switch {
	case isUp:
		d := j.daemons[node]
		d.upAt, d.upCalls = since, d.share.meter.OpStats()
		if j.pendingUp.Add(-1) == 0 {
			close(j.allUp)
		}
	case name == signal.NameGateOpen:
		j.gate.at, j.gate.calls, j.gate.processor = since, j.countCalls(), processorTime()
		close(j.gate.open)
	}
}

// countCalls returns the calls so far of each daemon.
func (j *simulatedJob) countCalls() []callCounts {
	counts := make([]callCounts, len(j.daemons))
	for node, d := range j.daemons {
		counts[node] = d.share.meter.OpStats()
	}
	return counts
}

// errEndedEarly reports that a daemon ended before it was requested to.
var errEndedEarly = errors.New("a daemon ended unexpectedly")

// runToEnd runs the job to its end.
func (j *simulatedJob) runToEnd(ctx context.Context) Result {
	// The daemons' contexts do not end with ctx but only by the functions below, so that the daemons
	// end in an orderly way. The head is the first to be requested to end.
	workers, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	head, leaveHead := context.WithCancel(workers)
	defer leaveHead()

	used := processorTime()
	j.startDaemons(head, workers)
	err := j.awaitMilestones(ctx)
	requested := j.clock.sinceStart()
	if err == nil {
		leaveHead()
	}
	j.awaitEnds(ctx, leave)
	gone := j.clock.sinceStart()
	// Calls that are still in progress would interfere with the removal of the directory.
	settling, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	for _, d := range j.daemons {
		d.share.meter.AwaitIdle(settling)
	}
	result := j.collectResult(used)
	result.ChainToGate = j.trace.findChain(0, result.Gate, j.runDir)
	result.ChainToEnd = j.trace.findChain(requested, gone, j.runDir)
	if code := j.exitCode(); code != 0 || err != nil {
		result.Failure = fmt.Sprint("the job exited with ", code)
		return result
	}
	result.End = gone - requested
	return result
}

// startDaemons starts all daemons.
func (j *simulatedJob) startDaemons(head, workers context.Context) {
	begin := make(chan struct{})
	for node, d := range j.daemons {
		role, ctx := roles.RoleWorker, workers
		if node == 0 {
			role, ctx = roles.RoleHead, head
		}
		go func() {
			<-begin
			code := daemon.Run(ctx, d.Config, role).Code
			j.ends <- daemonEnd{node, code, j.clock.sinceStart()}
		}()
	}
	j.clock.began = time.Now()
	close(begin)
}

// awaitMilestones waits until the gate is open, all nodes have reported that they are up, and the ranks
// have left the last fence. It returns errEndedEarly if a daemon ends before, and ctx's cause if ctx ends.
func (j *simulatedJob) awaitMilestones(ctx context.Context) error {
	for _, milestone := range []<-chan struct{}{j.gate.open, j.allUp, j.world.allDone} {
		select {
		case <-milestone:
		case e := <-j.ends:
			j.ended = append(j.ended, e)
			return errEndedEarly
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

const (
	// settleTimeout is a few times the maximum latency of a call.
	settleTimeout = 5 * time.Second
	// interruptPause is longer than the time within which a further signal is taken for a duplicate of
	// the first.
	interruptPause = 2500 * time.Millisecond
)

// awaitEnds waits until all daemons have ended. If ctx ends, or if they take longer than they should,
// it calls leave and interrupts the head, so that they end at once.
func (j *simulatedJob) awaitEnds(ctx context.Context, leave func()) {
	interrupted := ctx.Done() // nil after ctx has ended once
	timer := time.NewTimer(j.endTimeout())
	defer timer.Stop()
	for len(j.ended) < len(j.daemons) {
		select {
		case e := <-j.ends:
			j.ended = append(j.ended, e)
			if e.node == 0 {
				timer.Reset(j.endTimeout())
			}
			continue
		case <-interrupted:
			interrupted = nil
		case <-timer.C:
		}
		leave()
		// A second signal after a pause ends the head's grace periods.
		select {
		case j.interrupts <- os.Interrupt:
		default:
		}
		timer.Reset(interruptPause)
	}
}

// endTimeout returns the maximum time that the workers take to end after the head has ended, and
// that the head takes after the request to end.
func (j *simulatedJob) endTimeout() time.Duration {
	times := j.cfg.daemonTimeouts()
	poll := health.WorkerHeartbeatTiming(times.Peer, j.cfg.Nodes).MaxPollInterval
	return poll + times.Peer + times.DriverGrace + times.StopGrace
}

// collectResult returns the measurements of the job. All daemons must have ended. used is the
// processor time of this process before they started.
func (j *simulatedJob) collectResult(used time.Duration) Result {
	r := Result{
		Nodes: len(j.daemons), Gate: j.gate.at, Whole: sumCounts(j.countCalls()...),
		World:   j.world.worldTiming(j.clock.began.Add(j.gate.at), j.gate.calls),
		Machine: MachineUse{Memory: peakMemory()},
	}
	if j.roles != nil {
		r.Roles = j.roles.counts
	}
	// Calls until the gate opened, if it did.
	if calls := j.gate.calls; calls != nil {
		r.Calls.Head, r.Calls.All = sumCounts(calls[0]), sumCounts(calls...)
		r.Calls.WorkerToGate = distribution(calls[1:], "")
		r.Calls.Peak = j.clock.peakRate(j.gate.at)
		r.Machine.Processor = j.gate.processor - used
		r.Machine.Busy = r.Machine.Processor.Seconds() / j.gate.at.Seconds() / float64(runtime.GOMAXPROCS(0))
	}
	// Times and calls until each daemon was up, for those that were.
	var up []time.Duration
	var workers []callCounts
	for node, d := range j.daemons {
		if d.upCalls == nil {
			continue
		}
		up = append(up, d.upAt)
		if node > 0 {
			workers = append(workers, d.upCalls)
		}
	}
	r.Up = percentilesOf(up)
	r.Calls.Worker, r.Calls.WorkerReads = distribution(workers, ""), distribution(workers, "read")
	return r
}

// exitCode returns the exit code of the job: the head's or, if that is 0, the highest of all.
func (j *simulatedJob) exitCode() (highest int) {
	for _, one := range j.ended {
		if one.node == 0 && one.code != 0 {
			return one.code
		}
		highest = max(highest, one.code)
	}
	return highest
}

// addCause adds the cause of a failure from the run directory.
func (j *simulatedJob) addCause(r *Result) {
	if r.Failure == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.cfg.Peer)
	defer cancel()
	var result record.Result
	dir, _, err := signal.OpenExisting(ctx, j.runDir, "this machine")
	if err == nil {
		err = dir.ReadRecord(ctx, "", signal.NameResult, &result)
	}
	if err == nil && result.Cause == nil {
		err = errors.New("no cause was recorded")
	}
	if err != nil {
		r.Failure += ": " + err.Error()
		return
	}
	r.Failure += ": " + result.Cause.Message
}
