package daemon

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
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
		return n.PublishState(record.StateSandboxReady)
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

// awaitSandboxes waits until the number of sandboxes that the gate requires are ready.
func (h *head) awaitSandboxes(ctx context.Context) error {
	if !h.node.cfg.Sandbox.IsRequested() {
		return nil
	}
	// A node needs time to report that it is late.
	within := h.node.cfg.CheckTimeout() + h.node.cfg.Times.Start + h.node.Timing.SilenceTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	began := time.Now()
	last, err := h.nodeWatch.WaitListing(ctx, h.hasEnoughSandboxes)
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
		h.node.cfg.Sandbox.Require, textutil.RoundedDuration(waited, time.Minute), h.node.nodeNames(late),
		textutil.FlagDuration(h.node.cfg.Times.Start))
	f.Phase = record.PhaseSandbox
	return f
}
