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
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/internal/textutil"
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

// SimulateJob runs one job in the room, and returns when its daemons have ended. It returns the
// type of the file system as share. A job that failed is a Run with a Failure. The error is ctx's
// cause if ctx ended before the job, or the reason for which nothing could be run.
func SimulateJob(ctx context.Context, room *ScratchDir, cfg Config) (run JobResult, share string, err error) {
	local, err := files.MakeOwnedTemp("", "bringupd-simulate-")
	if err != nil {
		return JobResult{}, "", fmt.Errorf("cannot create a directory for the daemons' private files: %v", err)
	}
	defer func() { _ = local.Remove() }()
	said, err := local.Root().Create("said")
	if err != nil {
		return JobResult{}, "", fmt.Errorf("cannot create a file for the daemons' output: %v", err)
	}
	defer func() { _ = said.Close() }()
	j := newSimulatedJob(room, cfg, said)
	run = j.runToEnd(ctx)
	if ctx.Err() != nil {
		return run, "", context.Cause(ctx)
	}
	share = j.explainFailure(&run)
	return run, share, nil
}

// maxConcurrentCalls is the maximum number of concurrent calls of all daemons together, because
// each call occupies a thread. It is more than the client of one machine sends to a server, and
// more than a server processes concurrently. Go gives up at 10,000 threads.
const maxConcurrentCalls = 512

// simulatedJob is one simulated job: its daemons, and the measurements.
type simulatedJob struct {
	cfg    Config
	runDir string // its run directory
	// receives all output of the daemons; its directory has their private files
	outputFile  *os.File
	daemons     []*simDaemon // in node order
	faultTarget *faultTarget // nil if no daemon dies
	transport   string       // transport of the peer links
	clock       *callClock
	trace       *callTrace // nil if the calls are not traced
	machine     machineMonitor

	endEvents    chan daemonEnd // receives the end of each daemon
	endedDaemons []daemonEnd    // ends that have been received

	pendingUp atomic.Int64  // number of daemons that are not up
	allUp     chan struct{} // closed when all are up
	gate      gateMeasurements
	world     *rankWorld
	roles     *simulatedRoles // nil if the job has none
}

// simDaemon is one simulated daemon.
type simDaemon struct {
	deps.Config
	share   *simulatedShare
	signals chan os.Signal // for interrupts that hasten its end; nil if it needs none

	// Written by the daemon itself, and read after all daemons have ended.
	upAt    time.Duration // from the start of all daemons
	upCalls callCounts    // its calls until it was up; nil if it never was
}

// gateMeasurements has the measurements at the opening of the gate. The head writes the other
// fields before it closes open.
type gateMeasurements struct {
	open  chan struct{}
	at    time.Duration // from the start of all daemons
	calls []callCounts  // calls of each daemon until then
}

// daemonEnd is the end of one daemon.
type daemonEnd struct {
	node, code int
	at         time.Duration // from the start of all daemons
}

// newSimulatedJob prepares the daemons of a job, but does not start them.
func newSimulatedJob(room *ScratchDir, cfg Config, said *os.File) *simulatedJob {
	j := &simulatedJob{
		cfg: cfg, outputFile: said, transport: cfg.chooseTransport(), faultTarget: newFaultTarget(cfg), clock: newCallClock(2*cfg.JoinTimeout + cfg.Steady),
		endEvents: make(chan daemonEnd, cfg.Nodes), allUp: make(chan struct{}), gate: gateMeasurements{open: make(chan struct{})},
	}
	j.world, j.roles = newRankWorld(cfg, j.countCalls), newSimulatedRoles(cfg)
	if cfg.Trace {
		j.trace = new(callTrace)
	}
	j.pendingUp.Store(int64(cfg.Nodes))
	if j.roles != nil {
		j.pendingUp.Store(int64(j.roles.nodesWithInstances()))
	}
	room.runCount++
	// All daemons have the identity of a local job, with simulated host names.
	id := launcher.Identity{
		Launcher: launcher.LauncherLocal, Size: cfg.Nodes, Job: "nodes-" + strconv.Itoa(cfg.Nodes), Step: strconv.Itoa(room.runCount),
		LaunchKey: filepath.Base(room.Path()), LocalSize: 1, GPUs: -1,
	}
	for node := range cfg.Nodes {
		id.Hosts = append(id.Hosts, fmt.Sprintf("n%0*d", signal.IndexWidth(cfg.Nodes), node))
	}
	j.runDir = filepath.Join(room.Path(), id.RunName())
	// All daemons share the simulated server and the limit of concurrent calls.
	delay, slots := cfg.newCallDelay(), make(chan struct{}, maxConcurrentCalls)
	var network peerlink.Network = peerlink.TCP{}
	if j.transport == transportMemory {
		network = new(memoryNetwork)
	}
	for node := range cfg.Nodes {
		p := &simDaemon{share: newSimulatedShare(j.clock.countCall, delay, slots)}
		// The daemon reports its milestones by the marks that it writes.
		p.share.onWrite = func(name string) { j.noteMilestone(node, name) }
		p.share.onCallEnd = func(op signal.Op, path string, took time.Duration) {
			now := j.clock.sinceStart()
			j.trace.addCall(node, op, path, now-took, now)
		}
		if j.faultTarget != nil && j.faultTarget.node == node {
			p.share.faultTarget = j.faultTarget
		}
		p.Config = j.daemonConfig(room, id, node, p.share)
		p.Network = network
		if p.share.faultTarget != nil {
			p.Network = mortalNetwork{network, p.share.faultTarget.alive}
		}
		if node == 0 || p.share.faultTarget != nil {
			p.signals = make(chan os.Signal, 4)
			p.Signals = p.signals
		}
		j.daemons = append(j.daemons, p)
	}
	return j
}

// daemonConfig returns the configuration of one daemon. As for "bringupd local", a directory that
// only this machine can see is sufficient. The daemon polls it as it would poll a real shared file
// system.
func (j *simulatedJob) daemonConfig(room *ScratchDir, id launcher.Identity, node int, way *simulatedShare) deps.Config {
	id.NodeIndex, id.Host = node, id.Hosts[node]
	world, played, argv := j.world.daemonOptions(j.cfg)
	cfg := deps.Config{Config: config.Config{
		Workload: config.Workload{World: world, Driver: argv},
		Identity: id, LogDir: room.Path(), Program: j.cfg.Program,
		Framework: instantFramework{}, Lifeline: j.cfg.LinkMode, Times: j.cfg.daemonTimeouts(),
		Output:  config.Output{Streams: config.Streams{Out: j.outputFile, Err: j.outputFile}, JSONLog: true},
		Process: config.Process{TempDir: filepath.Dir(j.outputFile.Name())},
	}, Set: deps.Set{
		Checks:  passingChecks{node},
		Address: func() (launcher.NodeAddress, error) { return launcher.NodeAddress{Address: "127.0.0.1"}, nil },
		Access:  signal.Access{Meter: way.meter, FS: way, NoHints: true}, Simulation: played,
	}}
	j.cfg.addTo(&cfg)
	return cfg
}

// passingChecks are checks that pass at once. All nodes report the same hardware.
type passingChecks struct{ node int }

var _ deps.Checks = passingChecks{}

func (h passingChecks) AwaitReady(context.Context, func(check.Report)) check.Report {
	return check.Report{
		Version: check.ReportVersion, NodeIndex: h.node, Verdict: check.Pass,
		Findings:   []check.Finding{{ID: "gpu.count", Verdict: check.Pass, Observed: "8 of 8"}},
		Attributes: []check.Attribute{{ID: check.AttrGPUCount, Value: "8"}, {ID: check.AttrKernel, Value: "simulated"}},
	}
}

func (passingChecks) ApplyPolicy(findings []check.Finding) []check.Finding {
	return check.Policy{Mode: check.ModeAuto}.Apply(findings)
}

func (passingChecks) MaxDuration() time.Duration { return time.Second }

// instantFramework is a framework whose services are ready at once.
type instantFramework struct{}

var _ framework.Framework = instantFramework{}

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
		p := j.daemons[node]
		p.upAt, p.upCalls = since, p.share.meter.OpStats()
		if j.pendingUp.Add(-1) == 0 {
			close(j.allUp)
		}
	case name == signal.NameGateOpen:
		j.gate.at, j.gate.calls = since, j.countCalls()
		j.machine.gate = takeReading()
		close(j.gate.open)
	}
}

// countCalls returns the calls so far of each daemon.
func (j *simulatedJob) countCalls() []callCounts {
	counts := make([]callCounts, len(j.daemons))
	for node, p := range j.daemons {
		counts[node] = p.share.meter.OpStats()
	}
	return counts
}

// errEndedEarly reports that a daemon ended before it was requested to.
var errEndedEarly = errors.New("a daemon ended unexpectedly")

// runToEnd runs the job to its end.
func (j *simulatedJob) runToEnd(ctx context.Context) JobResult {
	// The daemons' contexts do not end with ctx but only by the functions below, so that the daemons
	// end in an orderly way.
	workers, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	head, leaveHead := context.WithCancel(workers)
	defer leaveHead()
	stop := j.machine.startSampling()
	defer stop()

	// Bring the job up, and measure the steady state.
	j.startDaemons(head, workers)
	steady, err := j.measureSteady(ctx)
	wish := j.clock.sinceStart()
	// Then end the job in the way that the configuration requires.
	before := sumCounts(j.countCalls()...)
	var death *DeathResult
	switch {
	case err == nil && j.faultTarget != nil:
		death = j.killAndMeasure(ctx, leave)
	case err == nil:
		j.reportProgress("ending")
		leaveHead()
	case errors.Is(err, errEndedEarly):
		j.reportProgress("a daemon ended unexpectedly: waiting for the others")
	default:
		j.reportProgress("interrupted: ending all daemons")
	}
	// Wait for all daemons and for their last calls.
	j.awaitEnds(ctx, leave, func() bool { return len(j.endedDaemons) == len(j.daemons) })
	gone := j.clock.sinceStart()
	// Files that calls still in progress create would interfere with the removal of the directory.
	settling, cancel := context.WithTimeoutCause(context.Background(), settleTimeout, errTimeOver)
	defer cancel()
	for _, p := range j.daemons {
		p.share.meter.AwaitIdle(settling)
	}
	stop()
	run := j.collectResult()
	run.Steady, run.Death = steady, death
	run.ChainToGate, run.ChainToEnd = j.trace.findChain(0, run.Gate, j.runDir), j.trace.findChain(wish, gone, j.runDir)
	switch code := j.exitCode(); {
	case death != nil:
		run.Failure = checkSurvivors(j.survivors())
	case code != 0 || err != nil:
		run.Failure = &Failure{Code: code, Codes: countExitCodes(j.endedDaemons)}
	default:
		run.End = OrderlyEnd{Took: gone - wish, Calls: run.Whole.Calls - before.Calls, Peak: j.clock.peakRate(wish, gone)}
	}
	return run
}

// startDaemons starts all daemons. The head has its own context, because it is the first to be
// requested to end. The workers learn of that from the run directory.
func (j *simulatedJob) startDaemons(head, workers context.Context) {
	begin := make(chan struct{})
	for node, p := range j.daemons {
		role, ctx := roles.RoleWorker, workers
		if node == 0 {
			role, ctx = roles.RoleHead, head
		}
		go func() {
			<-begin
			ctxutil.SleepContext(ctx, time.Duration(rand.Float64()*float64(j.cfg.Skew)))
			code := daemon.Run(ctx, p.Config, role).Code
			j.endEvents <- daemonEnd{node, code, j.clock.sinceStart()}
		}()
	}
	j.machine.start = takeReading()
	j.clock.began = time.Now()
	close(begin)
}

// measureSteady waits until the gate is open and all nodes have reported that they are up. Then it
// measures the steady state. It returns errEndedEarly if a daemon has ended, or ctx's cause.
func (j *simulatedJob) measureSteady(ctx context.Context) (*SteadyLoad, error) {
	j.reportProgress("bringing up")
	for _, milestone := range []<-chan struct{}{j.gate.open, j.allUp, j.world.allDone} {
		if err := j.awaitMilestone(ctx, milestone, nil); err != nil {
			return nil, err
		}
	}
	j.reportProgress("the gate opened after " + textutil.MeasuredDuration(j.gate.at))
	span := j.cfg.Steady / 2
	if span == 0 {
		return nil, nil
	}
	j.reportProgress("staying up for " + textutil.MeasuredDuration(2*span))
	if err := j.awaitMilestone(ctx, nil, time.After(span)); err != nil {
		return nil, err
	}
	began, before := time.Now(), j.countCalls()
	if err := j.awaitMilestone(ctx, nil, time.After(span)); err != nil {
		return nil, err
	}
	return steadyLoad(time.Since(began), before, j.countCalls()), nil
}

// awaitMilestone waits for a milestone or for a time. It returns errEndedEarly if a daemon ends
// before, and ctx's cause if ctx ends.
func (j *simulatedJob) awaitMilestone(ctx context.Context, milestone <-chan struct{}, over <-chan time.Time) error {
	select {
	case <-milestone:
		return nil
	case <-over:
		return nil
	case e := <-j.endEvents:
		j.endedDaemons = append(j.endedDaemons, e)
		return errEndedEarly
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// steadyLoad returns the rates of calls between two counts. Their first elements belong to the
// head.
func steadyLoad(took time.Duration, before, after []callCounts) *SteadyLoad {
	rate := func(node int) float64 {
		return float64(after[node].totalCalls()-before[node].totalCalls()) / took.Seconds()
	}
	s := &SteadyLoad{For: took, Head: rate(0)}
	for node := range after {
		s.All += rate(node)
	}
	if workers := len(after) - 1; workers > 0 {
		s.Worker = (s.All - s.Head) / float64(workers)
	}
	return s
}

// reportProgress reports progress, if the configuration includes a function for that.
func (j *simulatedJob) reportProgress(what string) {
	if j.cfg.Progress != nil {
		j.cfg.Progress(what)
	}
}

// awaitEnds waits until enough daemons have ended. If ctx ends, or if they take longer than they
// should, it calls leave and interrupts them, so that they end at once.
func (j *simulatedJob) awaitEnds(ctx context.Context, leave func(), enough func() bool) {
	// After ctx has ended once, do not react to it again.
	asked := ctx.Done()
	timer := time.NewTimer(j.endTimeout())
	defer timer.Stop()
	if j.faultTarget != nil && j.faultTarget.isReleased() {
		timer.Reset(interruptPause) // all others have ended
	}
	for !enough() {
		select {
		case e := <-j.endEvents:
			j.endedDaemons = append(j.endedDaemons, e)
			if e.node == 0 {
				timer.Reset(j.endTimeout())
			}
			continue
		case <-asked:
			asked = nil
		case <-timer.C:
		}
		leave()
		// A second signal after a pause ends the head's grace periods.
		j.interruptDaemons()
		timer.Reset(interruptPause)
	}
}

// settleTimeout is a few times the maximum latency that can be simulated.
const settleTimeout = 5 * maxLatency

// interruptPause is longer than the time within which a further signal is taken for a duplicate of
// the first.
const interruptPause = 2500 * time.Millisecond

// interruptDaemons interrupts the head and the victim, so that they end without grace periods.
func (j *simulatedJob) interruptDaemons() {
	for _, p := range j.daemons {
		select {
		case p.signals <- os.Interrupt: // a nil channel blocks, so this selects default
		default:
		}
	}
}

// endTimeout returns the maximum time that the workers take to end after the head has ended, and
// that the head takes after the request to end.
func (j *simulatedJob) endTimeout() time.Duration {
	times := j.cfg.daemonTimeouts()
	return health.WorkerHeartbeatTiming(times.Peer, j.cfg.Nodes).MaxPollInterval + times.Peer + times.DriverGrace + times.StopGrace
}

// collectResult returns the measurements of the run. All daemons must have ended.
func (j *simulatedJob) collectResult() JobResult {
	run := JobResult{Nodes: len(j.daemons), Lifelines: j.transport, Gate: j.gate.at, Machine: j.machine.machineUse(), Whole: sumCounts(j.countCalls()...), World: j.world.worldTiming(j.cfg, j.clock.began.Add(j.gate.at), j.gate.calls)}
	if j.roles != nil {
		run.Roles = &j.roles.counts
	}
	// Calls until the gate opened, if it did.
	if calls := j.gate.calls; calls != nil {
		run.Head, run.ToGate = sumCounts(calls[0]), sumCounts(calls...)
		run.WorkerToGate = callDistribution(calls[1:]).Calls
		run.Peak = j.clock.peakRate(0, j.gate.at)
	}
	// Times and calls until each daemon was up, for those that were.
	var up []time.Duration
	var workers []callCounts
	for node, p := range j.daemons {
		if p.upCalls == nil {
			continue
		}
		up = append(up, p.upAt)
		if node > 0 {
			workers = append(workers, p.upCalls)
		}
	}
	run.Up, run.Worker = percentilesOf(up), callDistribution(workers)
	return run
}

// countExitCodes counts the daemons by their exit codes.
func countExitCodes(all []daemonEnd) map[int]int {
	counts := make(map[int]int)
	for _, one := range all {
		counts[one.code]++
	}
	return counts
}

// exitCode returns the exit code of the job: the head's or, if that is 0, the highest of all.
func (j *simulatedJob) exitCode() (highest int) {
	for _, one := range j.endedDaemons {
		if one.node == 0 && one.code != 0 {
			return one.code
		}
		highest = max(highest, one.code)
	}
	return highest
}

// explainFailure returns the type of the file system that the daemons used, and adds the reason of
// a failure, which it reads from the run directory or from the daemons' output.
func (j *simulatedJob) explainFailure(run *JobResult) (share string) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), j.cfg.Peer, errTimeOver)
	defer cancel()
	// Read the file system and the result from the run directory.
	dir, rec, err := signal.OpenExisting(ctx, j.runDir, "this machine")
	if err == nil {
		share = rec.FileSystem
	}
	var result record.Result
	if err == nil && (run.Failure != nil || run.Death != nil) {
		err = dir.ReadRecord(ctx, "", signal.NameResult, &result)
	}
	if run.Death != nil && result.Cause != nil {
		run.Death.Kind, run.Death.Why = string(result.Cause.Kind), result.Cause.Message
	}
	if run.Failure == nil {
		return share
	}
	if err == nil && result.Cause != nil {
		run.Failure.Code, run.Failure.Word, run.Failure.Why = result.Code, result.Outcome, result.Cause.Message
		return share
	}
	// Without a cause in the result, search the daemons' output.
	run.Failure.Word = health.OutcomeOfKind(health.Internal).Name
	for _, outcome := range health.OutcomeTable() {
		if outcome.Code == run.Failure.Code {
			run.Failure.Word = outcome.Name
			break
		}
	}
	run.Failure.Why = "no cause was recorded"
	if said, err := os.ReadFile(j.outputFile.Name()); err == nil {
		if why, told := findFirstError(said); told {
			run.Failure.Why = why
		}
	}
	return share
}

// findFirstError returns the first error in the daemons' output, which consists of lines of JSON.
// Without an error, it returns the last line.
func findFirstError(said []byte) (what string, told bool) {
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
