package daemon

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// serveSandbox starts the node's sandbox, proves it and tells. A sandbox that
// fails is told of, and the head decides whether the gate can do without.
func (n *node) serveSandbox(ctx context.Context) error {
	if n.cfg.Sandbox.Command == "" {
		return nil
	}
	return n.phase("sandbox", func() error {
		service := &framework.Service{Name: "sandbox", Argv: shell(n.cfg.Sandbox.Command), Env: n.childEnv(n.cfg.Environ, n.launchSeat())}
		if probe := n.cfg.Sandbox.Ready; probe != nil {
			service.Ready = probe.Try
			service.Port, _ = probe.Port()
		}
		err := n.serve(ctx, service, health.SandboxDied, n.cfg.Times.Sandbox, n.sandboxFailed)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx) // that is no failure of the sandbox
		}
		if f, ok := errors.AsType[*failure](err); ok {
			n.sandboxFailed(f)
			return nil
		}
		if err != nil {
			return err
		}
		return n.tell(signal.Sandbox)
	})
}

func (n *node) sandboxFailed(f *failure) {
	if n.aside.Load() {
		return // it was ended with the rest of what ran here
	}
	if f.Phase == "" {
		f.Phase = "sandbox"
	}
	n.sandboxTold.Do(func() {
		n.log.Error(n.withLines(&f.FailedRecord))
		_ = n.report(f, signal.SandboxFailed)
	})
}

// runSandbox is the daemon of a sandbox in a step of its own: it serves the
// node's sandbox for the run of another step of the same job. It returns its
// exit code.
func (n *node) runSandbox() int {
	err := n.phase("join", n.attach)
	if err != nil {
		return n.leaveAlone(err)
	}
	n.background(n.followControl(signal.SandboxBeat))
	n.background(n.pulse(signal.Nodes, signal.SandboxBeat))
	if err := n.serveSandbox(n.life); err != nil {
		n.end(err)
	} else {
		n.isUp("the sandbox is ready")
	}
	<-n.life.Done()
	var end *ending
	if !errors.As(context.Cause(n.life), &end) {
		f := &failure{asFailure(context.Cause(n.life)).FailedRecord}
		n.sandboxFailed(f)
		end = endingOf(health.Decide([]health.Observed{{FailedRecord: f.FailedRecord}}, n.id.HostOf))
		if end.gentle {
			end = cmp.Or(n.awaitEnd(f), end)
		}
	}
	n.stopAll(end)
	code := end.code
	if end.orderly {
		code = 0
	}
	n.trail.Event(trail.End, trail.Fields{Code: &code})
	return code
}

// attach finds the run that waits for this sandbox, and this node's rank in it.
func (n *node) attach() error {
	ctx, cancel := context.WithTimeoutCause(n.life, n.cfg.Times.Join, errDeadline)
	defer cancel()
	finder := signal.NewStepFinder(n.place(), n.id.Job, n.id.Restart)
	dir, job, err := finder.Find(ctx)
	if errors.Is(err, errDeadline) {
		return failed(health.Share, "cannot find the run that this sandbox is for: %s has seen none of job %s in %s for %s: start the other step with --sandbox-step and the same --log-dir",
			n.name(n.id.Rank), n.id.Job, n.cfg.LogDir, n.cfg.Times.Join)
	}
	if err != nil {
		return err
	}
	rank, err := n.rankIn(ctx, dir)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.id.Rank, n.id.Size, n.id.Hosts = rank, job.Size, nil
	n.mu.Unlock()
	n.seat.Store(n.launchSeat())
	n.begin(dir.As(rank), "sandbox-daemon", signal.WorkerPace(n.id.Size))
	return nil
}

// rankIn returns the rank of this node in the run, by its host name. It is the
// one daemon that reads other nodes' names: the launcher has told it the ranks
// of another step.
func (n *node) rankIn(ctx context.Context, dir *signal.Dir) (int, error) {
	watch := dir.Watch(signal.Nodes, signal.WorkerPace(n.id.Size))
	looking, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch.Run(looking)
	}()
	defer func() {
		stop()
		<-ended
	}()
	found, read := -1, make(map[int]bool)
	_, err := watch.Wait(ctx, func(l signal.Listing) bool {
		found = n.matchHost(ctx, dir, l, read)
		return found >= 0
	})
	if errors.Is(err, errDeadline) {
		return 0, failed(health.Launch, "cannot find %s among the nodes of run %s: start the sandbox's step on the same nodes", n.id.Host, dir.Name())
	}
	return found, err
}

func (n *node) matchHost(ctx context.Context, dir *signal.Dir, l signal.Listing, read map[int]bool) int {
	ranks := l.Ranks(signal.Joined)
	// The same nodes in the same order is what is usual: look there first.
	if at, ok := slices.BinarySearch(ranks, n.id.Rank); ok {
		ranks[0], ranks[at] = ranks[at], ranks[0]
	}
	for _, rank := range ranks {
		if read[rank] {
			continue
		}
		var joined signal.JoinedRecord
		if dir.Read(ctx, signal.Nodes, dir.NodeName(rank, signal.Joined), &joined) != nil {
			return -1
		}
		read[rank] = true
		if joined.Host == n.id.Host {
			return rank
		}
	}
	return -1
}

// expectedSandboxes are the sandboxes whose own daemons should live.
func expectedSandboxes(l signal.Listing, step bool) map[int]int64 {
	alive := make(map[int]int64)
	if !step {
		return alive
	}
	beats := l.Beats(signal.SandboxBeat)
	for _, rank := range without(l.Ranks(signal.Sandbox), l.Ranks(signal.SandboxFailed)) {
		alive[rank] = beats[rank]
	}
	return alive
}

// sandboxesLost takes sandboxes for lost whose daemons have fallen silent.
func (h *head) sandboxesLost(silent []int, liveness *health.Liveness, l signal.Listing) {
	lost := append(l.Ranks(signal.SandboxFailed), silent...)
	slices.Sort(lost)
	if !h.cfg.Sandbox.Require.Missed(h.roster.among(slices.Compact(lost)), h.roster.count()) {
		return
	}
	quiet := liveness.Quiet(silent[0]).Round(time.Second / 10)
	f := failed(health.SandboxDied, "the sandbox of %s is lost: no beat of its daemon for %s", h.name(silent[0]), quiet)
	f.Header, f.Phase = h.header(), h.trail.Phase()
	if h.roster.spares {
		f.Lost = silent // it may be one that can be dropped
	}
	h.observe(f.FailedRecord, l.At)
}

// without returns the ranks that are not in lost; both are in order.
func without(ranks, lost []int) []int {
	return slices.DeleteFunc(slices.Clone(ranks), func(rank int) bool {
		_, gone := slices.BinarySearch(lost, rank)
		return gone
	})
}
