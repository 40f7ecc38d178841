package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/request"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// node is what every daemon is, the head's too.
type node struct {
	cfg   Config
	id    roles.Identity
	tempo health.Tempo
	log   *zap.Logger
	loud  zap.AtomicLevel // of what log tells people
	voice *voice
	trail *trail.Trail
	super *process.Supervisor

	dir     *signal.Dir   // nil until the run directory is made or found
	control *signal.Watch // over Control, from then on

	// life is over when the run is, or when something failed here: its cause
	// says what. ended is over when the end is published: its cause is an
	// *ending. What must still be done then (records, teardown) hangs from
	// work, which ends last.
	life  context.Context
	end   context.CancelCauseFunc
	ended context.Context
	over  context.CancelCauseFunc
	work  context.Context
	rest  context.CancelFunc
	// hurry is over when the signals leave no more time: so is every grace.
	// parting is over then, and before, when the driver's grace must be.
	hurry   context.Context
	hasten  context.CancelCauseFunc
	parting context.Context
	insist  context.CancelCauseFunc
	// led is over with hurry, and when the head is lost after this node has
	// begun to end: nobody else's end is to be waited for then.
	led    context.Context
	orphan context.CancelCauseFunc
	left   func() bool // stops heeding the caller's context

	signs *signs                   // of those that lifelines are held with; nil without any
	line  *line                    // to the head; nil on the head, and where there is none
	nudge func()                   // has the other ends of the lifelines look; nil without any
	calm  func(now time.Time) bool // every lifeline is well; nil without any
	hears func(now time.Time) bool // everybody who matters is heard by one; nil without any

	shown shown // outside of the run directory

	tasks errgroup.Group // everything that runs in the background under work

	checks  chan check.Report // what the checks say, once; nil before they begin
	fitness check.Report      // the same, where this node is fit; owned by the sequence

	sandboxTold sync.Once   // the sandbox's failure is recorded
	told        atomic.Bool // somebody has told this daemon to end
	forsaken    atomic.Bool // there is no head to make an end, as far as this node knows

	// seat is this node's place in the team; nil where it has none. Where there
	// are no spares it is that of the launch.
	seat    atomic.Pointer[seat]
	tenure  *tenure     // what runs in it; owned by who follows the team
	aside   atomic.Bool // the job goes on without this node, which was in the team or has failed
	sawGate atomic.Bool // a spare or a member has seen the open gate

	commands     *request.Node                // what somebody outside has this node run; nil before there is a run directory
	surroundings atomic.Pointer[surroundings] // nil until the service is up

	topology atomic.Pointer[learned] // nil until it is known where the GPUs sit

	// witness is told of what befalls this node; nil where it is not the head.
	witness func(signal.EventRecord)

	mu       sync.Mutex
	events   int               // how many have befallen this node; guarded by mu
	children []*process.Child  // in the order of their start; guarded by mu
	starting bool              // the driver is being started: it may run already; guarded by mu
	owed     []syscall.Signal  // what came for it then; guarded by mu
	tempDir  string            // made by us, removed at the end; guarded by mu
	evidence map[string]string // directories worth keeping where this node fails, by name in the logs; guarded by mu
}

// publish makes a record of this node's appear.
func (n *node) publish(sub, name string, rec signal.Record, durable bool) error {
	defer n.tug(sub, name)
	return n.traced(name, func() error {
		return n.asked("publish", filepath.Join(sub, name), n.cfg.Times.Peer, func(ctx context.Context) error {
			return n.dir.Publish(ctx, sub, name, rec, durable)
		})
	})
}

// claimed makes a record appear that another daemon may have published before.
func (n *node) claimed(sub, name string, rec signal.Record) error {
	defer n.tug(sub, name)
	return n.traced(name, func() error {
		return n.asked("publish", filepath.Join(sub, name), n.cfg.Times.Peer, func(ctx context.Context) error {
			return n.dir.Claim(ctx, sub, name, rec)
		})
	})
}

// mark makes a name appear that says all.
func (n *node) mark(sub, name string) error {
	defer n.tug(sub, name)
	return n.traced(name, func() error {
		return n.asked("publish", filepath.Join(sub, name), n.cfg.Times.Peer, func(ctx context.Context) error {
			return n.dir.Mark(ctx, sub, name)
		})
	})
}

// tell publishes that this node has reached a state.
func (n *node) tell(state string) error {
	err := n.mark(signal.Nodes, signal.NodeName(n.id.Rank, n.id.Size, state))
	if err == nil {
		n.reached(state)
	}
	return err
}

// reached tells who has started the daemon, where that is asked for.
func (n *node) reached(state string) {
	if n.cfg.Reached != nil {
		n.cfg.Reached(state)
	}
}

// asked makes a request of the share and waits for it: no longer than within
// while the run lives, and afterwards for a moment. What is not answered by
// then goes on, so that it is done when the share answers again.
func (n *node) asked(op, name string, within time.Duration, request func(ctx context.Context) error) error {
	patience := max(0, sickShare-n.silence())
	ctx, cancel := context.WithTimeoutCause(n.work, within, errDeadline)
	answer := make(chan error, 1)
	n.background(func(context.Context) {
		defer cancel()
		answer <- request(ctx)
	})
	select {
	case err := <-answer:
		return shareError(err)
	case <-n.life.Done():
	}
	if orderly(context.Cause(n.life)) && patience > 0 {
		patience = n.cfg.Times.Peer // all nodes end at once, which takes the server its time
	}
	moment := time.NewTimer(patience)
	defer moment.Stop()
	select {
	case err := <-answer:
		return shareError(err)
	case <-moment.C:
		return fmt.Errorf("%w: cannot %s %s: %w", errGoesOn, op, name, context.Cause(n.life))
	}
}

func shareError(err error) error {
	if err != nil && !errors.Is(err, signal.ErrTaken) {
		return asFailure(err)
	}
	return err
}

// errGoesOn says that a request of the share was not waited for to the end.
var errGoesOn = errors.New("the daemon ends and does not wait for the share")

// logged says that something could not be written. That a share which is known
// to hang did not take it is news to nobody.
func (n *node) logged(err error) {
	switch {
	case err == nil:
	case errors.Is(err, errGoesOn):
		n.log.Debug("the share hangs", zap.Error(err))
	default:
		n.log.Warn("cannot write into the run directory", zap.Error(err))
	}
}

// sickShare is how long the share may take for an answer that somebody waits
// for who is in a hurry.
const sickShare = time.Second

// silence is for how long the share has not answered this daemon.
func (n *node) silence() time.Duration {
	silence := n.cfg.Access.Meter.Silence()
	if n.control != nil {
		silence = max(silence, n.control.Silence())
	}
	return silence
}

// whileAnswered returns a context that ends when the share has not answered
// for as long, too.
func (n *node) whileAnswered(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	n.background(func(context.Context) {
		tick := time.NewTicker(sickShare / 10)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if n.silence() > most {
				cancel(errSilent)
				return
			}
		}
	})
	return ctx, func() { cancel(nil) }
}

var errSilent = errors.New("the share does not answer")

// begin starts what runs from the moment there is a run directory. The pace is
// that of the looks at Control.
func (n *node) begin(dir *signal.Dir, log string, pace signal.Pace) {
	n.dir = dir
	pace.Steady = min(pace.Steady, n.tempo.Look)
	pace.Fast = min(pace.Fast, pace.Steady)
	n.control = dir.Watch(signal.Control, pace)
	n.trail.Open(dir, n.id, log)
	n.commands = runsRequests(n)
	n.background(n.control.Run)
	n.background(n.watchShare)
}

// finish ends this node by a published end.
func (n *node) finish(end *ending) {
	n.isEnding(end.why)
	n.over(end)
	n.end(end)
}

// background runs a task until the daemon's work is over; run waits for it.
func (n *node) background(task func(ctx context.Context)) {
	n.tasks.Go(func() error {
		task(n.work)
		return nil
	})
}

// pulse beats as state in sub until the work is over. A share that refuses all beats would
// have the peers think that this node is lost: better say what is wrong. One that does not
// answer is watchShare's affair. While all lifelines are well, a beat now and then
// is enough.
func (n *node) pulse(sub, state string) func(ctx context.Context) {
	return func(ctx context.Context) {
		tick := time.NewTicker(n.tempo.Beat)
		defer tick.Stop()
		last, rests := time.Now(), 0
		refused := refusals(0)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := time.Now()
			if n.calm != nil && n.calm(now) && refused == 0 && now.Sub(last) < restful*n.cfg.Times.Peer {
				continue
			}
			if rests++; n.standsBy() && rests%standbyPart != 0 {
				last = now
				continue
			}
			err := n.beat(ctx, sub, state)
			_, stalled := errors.AsType[*signal.StallError](err)
			switch {
			case err == nil:
				last, refused = time.Now(), 0
			case ctx.Err() == nil && !stalled:
				refused++
				if refused == refusedTwice {
					n.logged(err) // who is told that the node is lost may read why
				}
				most := n.tempo.Silent
				if n.outwaits(now) {
					most = n.cfg.Times.Share
				}
				if refused.last(n.tempo.Beat) > most {
					n.end(asFailure(err))
					return
				}
			}
		}
	}
}

// refusals is how many beats in a row the share has refused.
type refusals int

const refusedTwice refusals = 2

// last is for how long there has been no beat, where one comes after the other.
func (r refusals) last(beat time.Duration) time.Duration { return time.Duration(r) * beat }

func (n *node) beat(ctx context.Context, sub, state string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.tempo.Silent, errors.New("the peers would miss the beat"))
	defer cancel()
	return n.dir.Beat(ctx, sub, state)
}

// serveWorker starts the node's worker, proves it and tells.
func (n *node) serveWorker(ctx context.Context, endpoint framework.Endpoint, place *seat) error {
	self, err := n.describe(place)
	if err != nil {
		return err
	}
	service, err := n.cfg.Framework.Worker(self, endpoint)
	if err != nil {
		return failed(health.ServiceDied, "%v", err)
	}
	if service != nil {
		service.Env = n.childEnv(service.Env, place)
		n.occupy(service.Name)
		err = n.serve(ctx, service, health.ServiceDied, n.cfg.Times.Service, func(f *failure) {
			if n.seat.Load() == place { // otherwise it was ended to make way
				n.end(f)
			}
		})
	}
	if err != nil {
		return err
	}
	return n.tell(signal.UpSince(place.since))
}

// describe is this node as frameworks see it.
func (n *node) describe(place *seat) (framework.Node, error) {
	address, err := n.cfg.Address()
	if err != nil {
		return framework.Node{}, failed(health.Launch, "%v; give --interface", err)
	}
	if place == nil {
		place = new(seat) // a head that does not know its team yet
	}
	temp, err := n.temp()
	if n.life.Err() != nil {
		return framework.Node{}, context.Cause(n.life)
	}
	if err != nil {
		return framework.Node{}, failed(health.Check, "cannot make a private directory on %s: %v", n.name(n.id.Rank), err)
	}
	return framework.Node{
		Attempt: n.dir.Name(), Rank: place.rank, Size: place.size, LaunchRank: n.id.Rank, Host: n.id.Host, Address: address,
		TempDir: temp, CPUs: n.id.CPUs, GPUs: n.id.GPUs, Shared: n.id.LocalSize > 1,
		NVLinkDomain: n.nvlinkDomain(), Environ: n.cfg.Environ,
	}, nil
}

// name is how messages speak of a rank.
func (n *node) name(rank int) string {
	if host := n.id.HostOf(rank); host != "" {
		return fmt.Sprintf("rank %d (%s)", rank, host)
	}
	return fmt.Sprintf("rank %d", rank)
}

// asks is what this daemon has asked of the share so far.
func (n *node) asks() *signal.Stats {
	stats := n.cfg.Access.Meter.Stats()
	return &stats
}

// report publishes a failure of this node's as state, so that it is never lost,
// and returns it as a failure.
func (n *node) report(err error, state string) *failure {
	f := &failure{asFailure(err).FailedRecord}
	f.Header = n.header()
	if !f.Seen.IsZero() {
		f.Age = time.Since(f.Seen)
	}
	if f.Phase == "" {
		f.Phase = n.trail.Phase()
	}
	n.trail.Event(trail.Failed, trail.Fields{Kind: f.Kind, What: f.What})
	record := f.FailedRecord
	publish := func(context.Context) {
		n.logged(n.publish(signal.Nodes, signal.NodeName(n.id.Rank, n.id.Size, state), &record, true))
	}
	if gentle(health.Kind(f.Kind)) {
		n.background(publish) // who was told to end does not wait for the share
	} else {
		publish(n.work)
	}
	return f
}

// keepEvidence saves what services have written in the private directory, where
// the run ends by this node or by the head.
func (n *node) keepEvidence(end *ending) {
	if end.cause == nil || (end.cause.Rank != n.id.Rank && n.id.Rank != 0) || n.silence() > sickShare {
		return
	}
	ctx, cancel := context.WithTimeoutCause(n.hurry, evidenceTime, errDeadline)
	defer cancel()
	n.mu.Lock()
	evidence := maps.Clone(n.evidence)
	n.mu.Unlock()
	for name, dir := range evidence {
		if err := n.dir.KeepEvidence(ctx, dir, name); err != nil {
			n.log.Warn("cannot keep the logs of a service", zap.String("in", dir), zap.Error(err))
		}
	}
}

// evidenceTime bounds what the keeping of evidence may add to the end.
const evidenceTime = 2 * time.Second

// header is what tells this node as the one that saw something.
func (n *node) header() signal.Header {
	return signal.Header{Version: signal.Version, Nonce: n.dir.Nonce(), Rank: n.id.Rank, Host: n.id.Host, At: time.Now()}
}

// close ends what is left and waits for it.
func (n *node) close() {
	n.left()
	n.isEnding("the daemon has done its part")
	errEnding := errors.New("the daemon is ending")
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, errEnding)
	defer cancel()
	if err := n.super.Close(ctx); err != nil {
		n.log.Warn("cannot end the guard", zap.Error(err))
	}
	if n.dir != nil {
		n.cfg.Access.Meter.Settle(ctx)
	}
	n.rest()
	_ = n.tasks.Wait()
	n.removeTemp()
	n.loud.SetLevel(zap.FatalLevel)
	if unread := n.voice.close(); unread > 0 {
		n.log.Warn("nobody has read standard error to its end", zap.Int("lines missing there", unread))
	}
	// What came before may have used up its time: the last lines have their own.
	ctx, cancelLast := context.WithTimeoutCause(context.Background(), time.Second, errEnding)
	defer cancelLast()
	var last sync.WaitGroup
	last.Go(func() { n.hide(ctx) })
	n.trail.Close(ctx)
	last.Wait()
}
