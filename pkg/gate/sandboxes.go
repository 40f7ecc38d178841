package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Sandboxes has the sandbox requirement of a gate, and its timeouts.
type Sandboxes struct {
	Require Require
	Step    bool          // the sandboxes belong to another job step; its daemons may start late or never
	First   time.Duration // timeout if no daemon of that step appears
	Timeout time.Duration // --sandbox-timeout, from the appearance of such a daemon
	Slack   time.Duration // additional time for a node to report that it exceeded its own timeout
	Met     func(l signal.Listing) bool
	Late    func(l signal.Listing) []int // returns the nodes whose sandboxes are not ready
	HostsOf func(ranks []int) string     // names nodes
}

// Await waits until a listing of nodes shows as many sandboxes as the gate needs. If the timeout
// has passed, its error is a *health.Failure; otherwise it is that of the watch.
func (s Sandboxes) Await(ctx context.Context, nodes *signal.Watch) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	late := time.AfterFunc(s.First+s.Slack, func() { cancel(health.ErrDeadline) })
	defer late.Stop()
	seen := 0
	last, err := nodes.Wait(ctx, func(l signal.Listing) bool {
		// From its appearance on, a daemon has its own timeout, and reports failures.
		if now := len(l.Beats(signal.SandboxBeat)); now > seen {
			seen = now
			late.Reset(s.Timeout + s.Slack)
		}
		return s.Met(l)
	})
	if !errors.Is(err, health.ErrDeadline) {
		return err
	}
	return s.failure(last, time.Since(began))
}

// failure returns the failure of a gate whose sandboxes are not ready after waited.
func (s Sandboxes) failure(l signal.Listing, waited time.Duration) *health.Failure {
	what := fmt.Sprintf("the gate needs the sandbox of %s, and after %s that of %s is not ready (--sandbox-timeout=%s)",
		s.Require, prose.Span(waited, time.Minute), s.HostsOf(s.Late(l)), prose.FlagTime(s.Timeout))
	beats := l.Beats(signal.SandboxBeat)
	var absent []int
	for _, rank := range s.Late(l) {
		if _, seen := beats[rank]; !seen {
			absent = append(absent, rank)
		}
	}
	if s.Step && len(absent) > 0 {
		what += fmt.Sprintf("; no daemon of the sandbox's step (--role=sandbox) has appeared on %s: "+
			"see whether that step was created, and what the srun that starts it says", s.HostsOf(absent))
	}
	f := health.Failed(health.Deadline, "%s", what)
	f.Phase = Sandbox
	return f
}
