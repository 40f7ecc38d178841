package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/request"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// head is rank 0: a node that leads the others besides.
type head struct {
	*node
	nodes *signal.Watch // over Nodes
	lines *lines        // nil where there are no lifelines

	chronicle chronicle
	gpus      atomic.Bool // a node of the job has some
	serving   atomic.Bool // the head's service is up
	counting  atomic.Bool // the framework is asked for its nodes

	began time.Time

	roster   *roster
	requests *request.Head
	arrivals *arrivals
	tripsMu  sync.Mutex
	trips    []signal.RoundTrip // guarded by tripsMu

	gate        time.Duration // from the start to the open gate; 0 before
	endpoint    framework.Endpoint
	driver      *process.Child // nil before it runs
	concluded   *ending        // how the run ends; nil before that is told
	slowSandbox sync.WaitGroup // the head's own sandbox, as long as it starts

	hearing    atomic.Bool // the verdict waits for who may be lost, too
	recorded   atomic.Bool // who is lost now is in no result any more
	failuresMu sync.Mutex
	failures   []health.Observed // what has failed so far, guarded by failuresMu
}

// runHead is the head's daemon; it returns its exit code, which is the job's.
func (n *node) runHead() int {
	h := &head{node: n, began: time.Now(), roster: newRoster(n.cfg)}
	h.witness = h.chronicle.keep
	defer h.closeLines()
	h.lookEarly()
	err := h.sequence(h.life)
	if h.dir == nil {
		return h.leaveAlone(err)
	}
	return h.conclude(h.judge(err))
}

// open makes the run directory, and begins to follow what appears in it.
func (h *head) open() error {
	address, _ := h.cfg.Address()
	lifelines, err := h.offerLines(address)
	if err != nil {
		return err
	}
	job := signal.Job{
		Digest: h.cfg.digest(), Addresses: []string{address}, Program: h.cfg.Program, PID: os.Getpid(),
		SandboxStep: h.cfg.Sandbox.Step, Lifeline: lifelines, Hosts: roles.HostList(h.id.Hosts), Plan: h.cfg.plan(),
		Launcher: string(h.id.Launcher), LaunchID: h.id.Job,
	}
	made, began := make(chan *signal.Dir, 1), time.Now()
	// Also who is told to end meanwhile waits for it a little: a run directory
	// without a head would keep the others waiting.
	err = h.asked("make", h.id.RunName(), h.cfg.Times.Join, func(ctx context.Context) error {
		dir, err := signal.Create(ctx, h.place(), job)
		made <- dir
		return err
	})
	if err != nil {
		return err
	}
	dir := <-made
	h.trail.Published(signal.NameJob, began)
	h.arrivals = newArrivals(time.Now())
	pace := signal.HeadPace
	pace.Fast = pace.Steady // nothing is waited for there, but what may come at any time
	h.begin(dir, "daemon", pace)
	pace = signal.HeadPace
	pace.Steady = min(h.tempo.Look, pace.Steady)
	h.nodes = dir.Watch(signal.Nodes, pace)
	h.shown.nodes.Store(h.nodes)
	h.tellTrace()
	h.log.Info("made the run directory", zap.String("dir", dir.Path()), zap.String("share", dir.FileSystem().Name))
	h.background(h.nodes.Run)
	h.requests = request.NewHead(h.commands, requestTeam{h})
	h.serveLines()
	h.background(h.followNodes)
	h.background(h.followEvents)
	h.background(h.followRequests)
	h.background(h.requests.FollowRequests)
	h.background(h.pulse(signal.Control, signal.BeatState))
	h.background(h.pointLatest)
	return nil
}

func (h *head) pointLatest(ctx context.Context) {
	if err := h.dir.PointLatest(ctx); err != nil && ctx.Err() == nil {
		h.log.Warn("cannot point at the newest run", zap.Error(err))
	}
}

// sequence goes through the phases. Its error is an orderly *ending where the
// driver has ended or a stop was asked for, and otherwise what failed.
//
// The head's own service is not kept waiting for the slowest node to join: what
// the others wait for is there when they come.
func (h *head) sequence(ctx context.Context) error {
	parts, own := errgroup.WithContext(ctx)
	opened := make(chan struct{})
	parts.Go(func() error {
		return h.phase("join", func() error {
			if err := h.open(); err != nil {
				return err
			}
			if err := h.checkDriver(own); err != nil {
				return err
			}
			close(opened)
			h.background(func(context.Context) { h.tellProgress(own) })
			return h.meet(own)
		})
	})
	parts.Go(func() error {
		select {
		case <-opened:
			return h.bringUp(own)
		case <-own.Done():
			return context.Cause(own)
		}
	})
	if err := parts.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := h.phase("gate", h.openGate); err != nil {
		return err
	}
	return h.phase("driver", func() error { return h.drive(ctx) })
}

// checkDriver finds the driver before anybody waits for it. The look is made
// aside, and left behind when ctx ends: the file system may hang.
func (h *head) checkDriver(ctx context.Context) error {
	if len(h.cfg.Driver) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.cfg.Times.Join, errDeadline)
	defer cancel()
	_, err := answered(ctx, func() (struct{}, error) { return struct{}{}, process.Find(h.cfg.Driver[0], h.cfg.Environ) })
	switch cause := context.Cause(ctx); {
	case cause == nil || !errors.Is(err, cause):
		return h.driverFailure(err)
	case !errors.Is(cause, errDeadline):
		return cause
	}
	return failed(health.Deadline, "cannot look at the driver on %s: the file system of %s has not answered for %s; see whether it hangs there",
		h.name(0), h.cfg.Driver[0], h.cfg.Times.Join)
}

func (h *head) driverFailure(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, process.ErrNotFound):
		return failed(health.NotFound, "cannot start the driver on %s: %v", h.name(0), err)
	case errors.Is(err, process.ErrNotExecutable):
		return failed(health.NotExecutable, "cannot start the driver on %s: %v", h.name(0), err)
	default:
		return failed(health.Internal, "cannot start the driver on %s: %v", h.name(0), err)
	}
}

// meet waits until every node has joined: the share is then proven both ways.
func (h *head) meet(ctx context.Context) error {
	own := h.publish(signal.Nodes, signal.NodeName(0, h.id.Size, signal.Joined), &signal.JoinedRecord{
		Canary: h.dir.Nonce(), PID: os.Getpid(), Program: h.cfg.Program,
	}, false)
	if own != nil {
		return own
	}
	within := h.cfg.Times.Join
	if h.roster.spares { // who is late is dropped, and the check is in the way of the team
		within += h.cfg.checkTime() + 2*h.tempo.Silent
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	// On a file system of one machine alone, nobody will come.
	suspect := h.dir.FileSystem().Local && h.id.Launcher != roles.Local
	last, err := h.nodes.Wait(ctx, func(l signal.Listing) bool {
		h.arrivals.note(l.Ranks(signal.Joined), l.At)
		if suspect && time.Since(h.began) > localJoin && len(l.Ranks(signal.Joined)) == 1 {
			cancel()
			return false
		}
		if h.roster.spares {
			members, _ := h.roster.team()
			return members != nil
		}
		return len(l.Missing(signal.Joined, h.id.Size)) == 0
	})
	if errors.Is(err, errDeadline) || errors.Is(err, context.Canceled) {
		return h.unmet(last.Missing(signal.Joined, h.id.Size))
	}
	return err
}

func (h *head) unmet(missing []int) *failure {
	mend := "see whether their tasks have started, and whether it is the same file system there"
	if h.dir.FileSystem().Local && h.id.Launcher != roles.Local {
		mend = fmt.Sprintf("it is on %s, which lives on one machine alone: give a --log-dir that all nodes share", h.dir.FileSystem().Name)
	}
	f := failed(health.Share, "cannot meet %d of %d nodes: %s did not answer through %s within %s: %s",
		len(missing), h.id.Size, h.hostsOf(missing), h.cfg.LogDir, time.Since(h.began).Round(time.Second/10), mend)
	f.Lost = missing
	return f
}

// bringUp runs check, sandbox, head and workers, side by side where nothing
// hangs on the order, until all nodes are up.
func (h *head) bringUp(ctx context.Context) error {
	if err := h.prepare(ctx); err != nil {
		return err
	}
	// The gate may do without the head's own sandbox, and is then not to wait
	// for it.
	h.slowSandbox.Go(func() {
		if err := h.serveSandbox(h.life); err != nil {
			h.end(err)
		}
	})
	parts, own := errgroup.WithContext(ctx)
	led := make(chan struct{})
	parts.Go(func() error {
		err := h.lead(own)
		if err == nil {
			close(led)
		}
		return err
	})
	parts.Go(func() error { return h.assemble(own, led) })
	return parts.Wait()
}

// raise waits until the team is up and its sandboxes are ready. life is what
// the head's own worker hangs from: it may outlive the team.
func (h *head) raise(ctx, life context.Context, led <-chan struct{}) error {
	parts, own := errgroup.WithContext(ctx)
	parts.Go(func() error {
		if !waitFor(own, led) {
			return context.Cause(own)
		}
		return h.workers(own, life)
	})
	parts.Go(func() error { return h.awaitNodes(own) })
	return parts.Wait()
}

// lead starts the head's service and tells where it is.
func (h *head) lead(ctx context.Context) error {
	if !h.cfg.Framework.Serves() {
		return nil
	}
	return h.phase("head", func() error {
		self, err := h.describe(h.launchSeat())
		if err != nil {
			return err
		}
		service, endpoint, err := h.cfg.Framework.Head(self)
		if err != nil {
			return failed(health.ServiceDied, "%v", err)
		}
		h.endpoint = endpoint
		if service != nil {
			service.Env = h.childEnv(service.Env, h.launchSeat())
			if err := h.serve(ctx, service, health.ServiceDied, h.cfg.Times.Service, func(f *failure) { h.end(f) }); err != nil {
				return err
			}
		}
		h.serving.Store(true)
		return h.publish(signal.Control, signal.NameHead, &signal.HeadRecord{Address: h.endpoint.Address, Env: h.endpoint.Env}, false)
	})
}

// workers brings up the head's own worker and waits for those of the others.
func (h *head) workers(ctx, life context.Context) error {
	if !h.cfg.Framework.Serves() || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return h.phase("workers", func() error {
		if h.roster.spares {
			h.takeOwnSeat(life)
		} else if err := h.serveWorker(ctx, h.endpoint, h.seat.Load()); err != nil {
			return err
		}
		if err := h.awaitAll(ctx, signal.Up, h.cfg.checkTime()+2*h.cfg.Times.Service+h.tempo.Silent); err != nil {
			return err
		}
		return h.settle(ctx)
	})
}

// awaitNodes waits for what the other nodes tell of their checks and sandboxes.
func (h *head) awaitNodes(ctx context.Context) error {
	if h.cfg.checked() {
		if err := h.awaitAll(ctx, signal.Checked, h.cfg.checkTime()+h.tempo.Silent); err != nil {
			return err
		}
		if err := h.compare(ctx, h.nodes.Last()); err != nil {
			return err
		}
	}
	if !h.cfg.Sandbox.Wanted() {
		return nil
	}
	within := h.cfg.checkTime() + h.cfg.Times.Sandbox + h.tempo.Silent
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	last, err := h.nodes.Wait(ctx, h.sandboxesMet)
	if !errors.Is(err, errDeadline) {
		return err
	}
	return failed(health.Deadline, "the gate needs the sandbox of %s, and after %s %s had none ready",
		h.cfg.Sandbox.Require, within, h.hostsOf(h.roster.missing(last, signal.Sandbox)))
}

// settle waits until the framework itself counts every node, and has for the
// settle time.
func (h *head) settle(ctx context.Context) error {
	counter, ok := h.cfg.Framework.(framework.Counter)
	if !ok {
		return nil
	}
	members := make([]framework.Member, 0, h.roster.count())
	for _, rank := range h.roster.ranks() {
		members = append(members, framework.Member{Rank: rank, Host: h.id.HostOf(rank)})
	}
	within := h.cfg.Times.Service
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	self, err := h.describe(h.launchSeat())
	if err != nil {
		return err
	}
	h.counting.Store(true)
	defer h.counting.Store(false)
	err = framework.Settle(ctx, h.cfg.Times.Settle, func(ctx context.Context) error {
		return counter.Fleet(ctx, self, h.endpoint, members)
	})
	if errors.Is(err, errDeadline) {
		return failed(health.ServiceDied, "%s does not count all %d nodes after %s: %v", h.cfg.Framework.Name(), len(members), within, err)
	}
	return err
}

// openGate tells that everything is proven ready.
func (h *head) openGate() error {
	if err := h.mark(signal.Control, signal.NameGo); err != nil {
		return err
	}
	h.gate = time.Since(h.began)
	h.surroundings.Store(&surroundings{endpoint: h.endpoint, hosts: h.teamHosts()})
	h.reached(signal.NameGo)
	h.isUp("the gate is open")
	if h.lines != nil {
		h.lines.run(h.cfg.Times.outwaits())
	}
	h.nodes.Relax(h.tempo.Look)
	h.control.Relax(h.tempo.Look)
	h.background(h.measureTrips)
	h.log.Info("the gate is open", zap.Int("nodes", h.roster.count()), zap.Duration("took", h.gate.Round(time.Millisecond)))
	return nil
}

// awaitAll waits until every node is in state. Each node has a deadline of its
// own and reports what failed: this one is for a node that does neither.
func (h *head) awaitAll(ctx context.Context, state string, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	last, err := h.nodes.Wait(ctx, func(l signal.Listing) bool {
		return len(h.roster.missing(l, state)) == 0
	})
	if !errors.Is(err, errDeadline) {
		return err
	}
	return failed(health.Deadline, "the head waited %s for %s to be %s, and they neither were nor failed",
		within, h.hostsOf(h.roster.missing(last, state)), state)
}

// hosts is every rank's host: as the launcher tells, or the node itself; the
// rank's number where neither has.
func (h *head) hosts() []string {
	joined := h.nodes.Last().Ranks(signal.Joined)
	hosts := make([]string, h.id.Size)
	for rank := range hosts {
		hosts[rank] = h.id.HostOf(rank)
		if _, there := slices.BinarySearch(joined, rank); hosts[rank] == "" && there {
			hosts[rank] = h.hostOfJoined(rank)
		}
		if hosts[rank] == "" {
			hosts[rank] = strconv.Itoa(rank)
		}
	}
	return hosts
}

// hostOfJoined reads the host of a rank that has joined; empty where it can't.
func (h *head) hostOfJoined(rank int) string {
	joined, err := h.readJoined(h.work, rank)
	if err != nil {
		h.log.Warn("cannot read which host a rank is on", zap.Int("of", rank), zap.Error(err))
	}
	return joined.Host
}

// readJoined reads the answer of a rank that has joined.
func (h *head) readJoined(ctx context.Context, rank int) (joined signal.JoinedRecord, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.tempo.Look, errDeadline)
	defer cancel()
	err = h.dir.Read(ctx, signal.Nodes, signal.NodeName(rank, h.id.Size, signal.Joined), &joined)
	return joined, err
}
