package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// SandboxGate has the sandbox requirement of a gate, and its timeouts.
type SandboxGate struct {
	Quorum SandboxQuorum
	Size   int // number of nodes of the run
	// the sandboxes belong to another job step; its daemons may start late or never
	SeparateStep  bool
	AppearTimeout time.Duration // timeout if no daemon of that step appears
	Timeout       time.Duration // --start-timeout, from the appearance of such a daemon
	// additional time for a node to report that it exceeded its own timeout
	ReportSlack   time.Duration
	IsMet         func(l signal.Listing) bool
	NotReadyNodes func(l signal.Listing) []int // returns the nodes whose sandboxes are not ready
	HostNames     func(nodes []int) string     // names nodes
}

// AwaitReady waits until a listing of nodes shows as many sandboxes as the gate needs. If the
// timeout has passed, its error is a *health.Failure; otherwise it is that of the watch.
func (s SandboxGate) AwaitReady(ctx context.Context, nodes *signal.Watch) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	late := time.AfterFunc(s.AppearTimeout+s.ReportSlack, func() { cancel(health.ErrDeadline) })
	defer late.Stop()
	seen := 0
	last, err := nodes.WaitListing(ctx, func(l signal.Listing) bool {
		// From its appearance on, a daemon has its own timeout, and reports failures.
		if now := len(l.OfSteps().NodesIn(record.StateJoined)); now > seen {
			seen = now
			late.Reset(s.Timeout + s.ReportSlack)
		}
		return s.IsMet(l)
	})
	if !errors.Is(err, health.ErrDeadline) {
		return err
	}
	return s.timeoutFailure(last, time.Since(began))
}

func (s SandboxGate) timeoutFailure(l signal.Listing, waited time.Duration) *health.Failure {
	notReady := s.NotReadyNodes(l)
	what := fmt.Sprintf("the gate requires the sandbox of %s, and after %s the sandbox of %s is not ready "+
		"(--start-timeout=%s)", s.Quorum, textutil.RoundedDuration(waited, time.Minute),
		s.HostNames(notReady), textutil.FlagDuration(s.Timeout))
	var absent []int
	for _, node := range notReady {
		if !l.IsIn(record.MemberIndex(node, 1, s.Size), record.StateJoined) {
			absent = append(absent, node)
		}
	}
	if s.SeparateStep && len(absent) > 0 {
		what += fmt.Sprintf("; no daemon of the sandbox's step (--role=sandbox) has appeared on %s: "+
			"check whether that step was created, and the output of its srun", s.HostNames(absent))
	}
	f := health.NewFailure(health.DeadlinePassed, "%s", what)
	f.Phase = record.PhaseSandbox
	return f
}
