package instances

import (
	"context"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// ServiceHost has the built-in services of this node: that of the head, the node's own, and its sandbox.
type ServiceHost interface {
	// DescribeService describes a service before each start. It returns nil if the node runs none. Its
	// error is a *health.Failure.
	DescribeService(kind roles.BuiltIn, slot service.Slot) (*framework.Service, error)
	// PrestartService starts the node's own service in advance, as far as it can before that of the head.
	PrestartService(ctx context.Context, slot service.Slot)
	// AwaitHeadService waits until the service of the head is up. Its error is a *health.Failure, or the
	// cause of ctx.
	AwaitHeadService(ctx context.Context) error
	// StartInPhase runs the start of a service as a part of the sequence.
	StartInPhase(kind roles.BuiltIn, start func() error) error
	// PublishService publishes that a service is ready, in its place since a plan.
	PublishService(kind roles.BuiltIn, since int) error
	// PublishSandboxFailure publishes the failure of the node's sandbox. The head decides whether enough
	// sandboxes are left.
	PublishSandboxFailure(f *health.Failure)
}

// startService starts a built-in service, and publishes that it is ready.
func (s *supervisor) startService(ctx context.Context, p roles.Process,
	since int) (started []startedProcess, failure *health.Failure) {
	kind, host := s.role.BuiltIn, s.cfg.Services
	slot := service.Slot{Place: p.Place, Size: len(s.known().Nodes)}
	if kind == roles.BuiltInWorker {
		host.PrestartService(ctx, slot)
		if err := host.AwaitHeadService(ctx); err != nil {
			return nil, health.AsFailure(err)
		}
	}
	err := host.StartInPhase(kind, func() error {
		running, err := s.cfg.Children.StartProgram(ctx, service.Program{
			Describe: func() (*framework.Service, error) { return host.DescribeService(kind, slot) },
			Stop:     s.stopProcess, Kind: s.failureKind(), Within: s.role.Ready.Timeout,
		})
		if running != nil {
			started = []startedProcess{{Running: running, process: p, isService: true}}
		}
		if err != nil {
			return err
		}
		return host.PublishService(kind, since)
	})
	if err != nil {
		return started, health.AsFailure(err)
	}
	return started, nil
}

// loseService reports that a built-in service has failed: a sandbox is lost, and any other failure is
// that of the node.
func (s *supervisor) loseService(f *health.Failure) {
	f.SeenAt = time.Now() // until now a signal to this daemon could have been the cause
	if s.role.BuiltIn == roles.BuiltInSandbox {
		s.cfg.Services.PublishSandboxFailure(f)
	} else {
		s.cfg.CancelRun(f)
	}
}

// AwaitServices waits until the built-in services of this node are ready, or have failed, or ctx ends.
func (n *Node) AwaitServices(ctx context.Context) {
	for _, s := range n.supervisorsNow() {
		if s.defined.BuiltIn.IsService() {
			ctxutil.AwaitDone(ctx, s.settled.Done())
		}
	}
}

// serviceMarks returns the marks of the built-in services according to a listing of Nodes. That of the
// head has none there.
func (h *Head) serviceMarks(l signal.Listing) (marks []record.InstanceMark) {
	published := roles.NewServiceMarks(l, h.cfg.IsHeadServiceUp != nil && h.cfg.IsHeadServiceUp())
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, state := range h.instances {
		mark, ok := published.Of(state.Role.BuiltIn, state.Instance.Number, state.Evidence.Nodes[0],
			state.Evidence.Generation)
		if ok {
			marks = append(marks, mark)
		}
	}
	return marks
}

// LateNodes returns the members of the team on which instances of the roles of a kind are not ready,
// sorted.
func (h *Head) LateNodes(kind roles.BuiltIn) (nodes []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, state := range h.instances {
		if state.Role.BuiltIn == kind && state.Status != roles.StatusReady {
			nodes = append(nodes, state.Evidence.Nodes[0])
		}
	}
	slices.Sort(nodes)
	return nodes
}

// AwaitKind waits until the roles of a kind have what the gate requires. It returns the cause if ctx ends
// first.
func (h *Head) AwaitKind(ctx context.Context, kind roles.BuiltIn) error {
	return h.awaitSatisfied(ctx, func(role *roles.RolePlan) bool { return role.BuiltIn == kind })
}
