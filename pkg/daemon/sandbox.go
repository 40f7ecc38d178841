package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/advice"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// serveSandbox starts the node's sandbox, if it has one, and publishes that it is ready, or its
// failure: the head decides whether enough sandboxes are left.
func (n *node) serveSandbox(ctx context.Context) error {
	if n.cfg.Sandbox.Command == "" {
		return nil
	}
	return n.RunPhase(record.PhaseSandbox, func() error {
		service := framework.NewService("sandbox", service.ShellCommand(n.cfg.Sandbox.Command),
			n.childEnv(n.cfg.Environ, n.launchPlace()), n.cfg.Sandbox.Ready)
		err := n.children.StartService(ctx, service, health.SandboxDied, n.cfg.Times.Start, n.reportSandboxFailure)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx) // this is not a failure of the sandbox
		}
		if f, ok := errors.AsType[*health.Failure](err); ok {
			n.reportSandboxFailure(f)
			return nil
		}
		if err != nil {
			return err
		}
		return n.MarkName(signal.NodesDir, signal.NodeName(n.ownNode(), n.id.Size, record.StateSandboxReady))
	})
}

// reportSandboxFailure logs and publishes the failure of this node's sandbox, once.
func (n *node) reportSandboxFailure(f *health.Failure) {
	if n.placement.Excluded.Load() {
		return // it was ended with all other children
	}
	if f.Phase == "" {
		f.Phase = record.PhaseSandbox
	}
	n.sandboxFailureOnce.Do(func() {
		quoted := (&advice.Summary{Result: &record.Result{Cause: &f.Failure}, RunDir: n.Dir.Path()}).QuoteLog()
		n.Log.Error(strings.Join(append([]string{f.Message}, quoted...), "\n"))
		_ = n.publishFailure(f, record.StateSandboxFailed)
	})
}

// endSandboxDaemon returns the outcome by which the daemon of a sandbox in a step of its own ends
// after a failure of its node, which it publishes as that of the sandbox.
func (w *worker) endSandboxDaemon(err error) *lifecycle.Outcome {
	f := &health.Failure{Failure: health.AsFailure(err).Failure}
	w.reportSandboxFailure(f)
	end := lifecycle.OutcomeOfVerdict(health.DecideVerdict([]health.ObservedFailure{{Failure: f.Failure}}, w.id.HostOf))
	if end.Requested {
		end = cmp.Or(w.awaitHeadOutcome(f), end)
	}
	return end
}

// awaitSandboxes waits until the number of sandboxes that the gate requires are ready. A daemon of a
// step of its own may start late or never; from its appearance on it has its own timeout.
func (h *head) awaitSandboxes(ctx context.Context) error {
	if !h.cfg.Sandbox.IsRequested() {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began, slack := time.Now(), h.Timing.SilenceTimeout // a node needs time to report that it is late
	late := time.AfterFunc(h.cfg.SandboxTimeout(h.Events.SinceStart())+slack, func() { cancel(errDeadline) })
	defer late.Stop()
	seen := 0
	last, err := h.nodeWatch.WaitListing(ctx, func(l signal.Listing) bool {
		if now := len(l.OfSteps().NodesIn(record.StateJoined)); now > seen {
			seen = now
			late.Reset(h.cfg.Times.Start + slack)
		}
		return h.hasEnoughSandboxes(l)
	})
	if !errors.Is(err, errDeadline) {
		return err
	}
	return h.sandboxTimeoutFailure(last, time.Since(began))
}

// sandboxTimeoutFailure returns the failure that too few sandboxes have become ready.
func (h *head) sandboxTimeoutFailure(l signal.Listing, waited time.Duration) *health.Failure {
	late := h.membership.MissingNodes(l, record.StateSandboxReady)
	f := health.NewFailure(health.DeadlinePassed,
		"the gate requires the sandbox of %s, and after %s the sandbox of %s is not ready (--start-timeout=%s)",
		h.cfg.Sandbox.Require, textutil.RoundedDuration(waited, time.Minute), h.nodeNames(late),
		textutil.FlagDuration(h.cfg.Times.Start))
	f.Phase = record.PhaseSandbox
	absent := slices.DeleteFunc(late, func(node int) bool {
		return l.IsIn(record.MemberIndex(node, 1, h.id.Size), record.StateJoined)
	})
	if h.cfg.Sandbox.Step && len(absent) > 0 {
		f.Message += fmt.Sprintf("; no daemon of the sandbox's step (--role=sandbox) has appeared on %s: "+
			"check whether that step was created, and the output of its srun", h.nodeNames(absent))
	}
	return f
}

// recordSandboxLosses records the loss f of the members that are daemons of sandboxes, and returns
// the other members. The run ends if too few sandboxes are left.
func (h *head) recordSandboxLosses(f *health.Failure, members []int, at time.Time) (others []int) {
	var lost []int
	h.lostSandboxes.Lock()
	for _, member := range members {
		node := record.NodeOfMember(member, h.id.Size)
		if member == node {
			others = append(others, member)
		} else if !slices.Contains(h.lostSandboxes.nodes, node) {
			lost = append(lost, node)
		}
	}
	h.lostSandboxes.nodes = append(h.lostSandboxes.nodes, lost...)
	gone := append(h.nodeWatch.LastListing().NodesIn(record.StateSandboxFailed), h.lostSandboxes.nodes...)
	h.lostSandboxes.Unlock()
	if len(lost) == 0 {
		return others
	}
	slices.Sort(gone)
	if !h.lacksSandboxes(slices.Compact(gone)) {
		h.Log.Warn("a sandbox is lost that the gate does not require", zap.String("what", f.Message))
		return others
	}
	loss := health.NewFailure(health.SandboxDied, "the sandbox of %s is lost: %s", h.nodeNames(lost), f.Message)
	loss.Header, loss.Phase = h.recordHeader(), h.Events.CurrentPhase()
	if h.membership.HasSpares() {
		loss.LostNodes = lost // the job may drop these nodes and continue
	}
	h.handleFailure(loss.Failure, at)
	return others
}
