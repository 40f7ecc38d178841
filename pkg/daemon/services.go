package daemon

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/advice"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// builtInServices has the built-in services of a node: it implements [instances.ServiceHost].
type builtInServices struct {
	*node
	head   *head   // nil on other nodes than the head's
	worker *worker // nil on the head's node
}

// DescribeService implements [instances.ServiceHost].
func (b builtInServices) DescribeService(kind roles.BuiltIn, slot service.Slot) (*framework.Service, error) {
	switch kind {
	case roles.BuiltInSandbox:
		return framework.NewService("sandbox", service.ShellCommand(b.cfg.Sandbox.Command),
			b.environ(launcher.ChildCommand, b.cfg.Environ, b.launchSlot(), nil), b.cfg.Sandbox.Ready), nil
	case roles.BuiltInHead:
		return b.head.describeHeadService()
	}
	return b.describeWorkerService(&slot)
}

// describeHeadService describes the service of the head, and sets the endpoint of the cluster.
func (h *head) describeHeadService() (*framework.Service, error) {
	n := h.node
	self, err := n.describeForFramework(n.cfg.Framework, n.launchSlot())
	if err != nil {
		return nil, err
	}
	cluster := framework.Cluster{Framework: n.cfg.Framework, Head: self}
	described, err := cluster.HeadService()
	h.running.cluster = cluster
	if described != nil {
		described.Env = n.environ(n.serviceKind(), described.Env, n.launchSlot(), nil)
	}
	return described, err
}

// describeWorkerService describes the framework's service of this node in a place.
func (b builtInServices) describeWorkerService(slot *service.Slot) (*framework.Service, error) {
	self, err := b.describeForFramework(b.cfg.Framework, slot)
	if err != nil {
		return nil, err
	}
	var endpoint framework.Endpoint // empty if the process is started in advance
	if known := b.serviceInfo.Load(); known != nil {
		endpoint = known.Endpoint
	}
	described, err := framework.Cluster{Framework: b.cfg.Framework, Endpoint: endpoint}.WorkerService(self)
	if described != nil {
		described.Env = b.environ(b.serviceKind(), described.Env, slot, nil)
	}
	return described, err
}

// PrestartService implements [instances.ServiceHost]. An error is reported when the head is up. If the place
// may change, nothing is started in advance.
func (b builtInServices) PrestartService(ctx context.Context, slot service.Slot) {
	if b.head == nil && !b.cfg.HasSpares() {
		ahead, _ := b.describeWorkerService(&slot)
		b.children.Prestart(ctx, ahead)
	}
}

// AwaitHeadService implements [instances.ServiceHost].
func (b builtInServices) AwaitHeadService(ctx context.Context) error {
	if b.worker != nil {
		return b.worker.awaitHeadService(ctx)
	}
	if !ctxutil.AwaitDone(ctx, b.head.progress.serviceUp) {
		return context.Cause(ctx)
	}
	return nil
}

// StartInPhase implements [instances.ServiceHost]. The phase of the workers on the head's node is that of
// all nodes.
func (b builtInServices) StartInPhase(kind roles.BuiltIn, start func() error) error {
	phases := map[roles.BuiltIn]record.Phase{roles.BuiltInHead: record.PhaseHead,
		roles.BuiltInWorker: record.PhaseWorkers, roles.BuiltInSandbox: record.PhaseSandbox}
	if kind == roles.BuiltInWorker && b.head != nil {
		return start()
	}
	return b.RunPhase(phases[kind], start)
}

// PublishService implements [instances.ServiceHost].
func (b builtInServices) PublishService(kind roles.BuiltIn, since int) error {
	switch kind {
	case roles.BuiltInSandbox:
		return b.PublishState(record.StateSandboxReady)
	case roles.BuiltInWorker:
		return b.PublishState(signal.ServiceUpState(since))
	}
	cluster := b.head.running.cluster
	b.serviceInfo.Store(&service.Team{Endpoint: cluster.Endpoint})
	close(b.head.progress.serviceUp)
	b.children.CheckOpenAccess(cluster)
	err := b.Publish(signal.ControlDir, signal.NameHead, &record.Head{Address: cluster.Endpoint.Address,
		Env: cluster.Endpoint.Env, Dashboard: cluster.Endpoint.Dashboard}, false)
	return err
}

// PublishSandboxFailure implements [instances.ServiceHost]: it logs and publishes the failure, once.
func (b builtInServices) PublishSandboxFailure(f *health.Failure) {
	if b.isExcluded.Load() {
		return // it was ended with all other children
	}
	if f.Phase == "" {
		f.Phase = record.PhaseSandbox
	}
	quoted := (&advice.Summary{Result: &record.Result{Cause: &f.Failure}, RunDir: b.Dir.Path()}).QuoteLog()
	b.Log.Error(strings.Join(append([]string{f.Message}, quoted...), "\n"))
	_ = b.publishFailure(f, record.StateSandboxFailed)
}

// awaitHeadService waits until the head's service is up, and stores its endpoint.
func (w *worker) awaitHeadService(ctx context.Context) error {
	if w.node.serviceInfo.Load() != nil { // the service of this node was started before, in another place
		return nil
	}
	return w.node.RunPhase(record.PhaseHead, func() error {
		within := w.node.cfg.CheckTimeout() + w.node.cfg.Times.Start + w.node.Timing.SilenceTimeout
		ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
		defer cancel()
		w.node.ControlWatch.NotifyChange() // poll at once, because it may be up already
		_, err := w.node.ControlWatch.WaitListing(ctx,
			func(l signal.Listing) bool { return l.HasName(signal.NameHead) })
		if errors.Is(err, errDeadline) {
			return health.NewFailure(health.DeadlinePassed,
				"%s waited %s for the service of the head, %s, which neither came up nor failed",
				w.node.nodeName(w.node.id.NodeIndex), within, w.node.nodeName(0))
		}
		if err != nil {
			return err
		}
		var rec record.Head
		err = w.node.Dir.ReadRecord(ctx, signal.ControlDir, signal.NameHead, &rec)
		if errors.Is(err, errDeadline) {
			return health.NewFailure(health.ShareUnusable, "%v", err)
		}
		if err != nil {
			return err
		}
		w.node.serviceInfo.Store(&service.Team{Endpoint: framework.Endpoint{Address: rec.Address, Env: rec.Env}})
		return nil
	})
}

// awaitServices waits until the built-in services have what the gate requires, and the framework lists
// all members.
func (h *head) awaitServices(ctx context.Context) error {
	if !h.node.cfg.Framework.HasServices() {
		return nil
	}
	if !ctxutil.AwaitDone(ctx, h.progress.serviceUp) {
		return context.Cause(ctx)
	}
	within := h.node.cfg.CheckTimeout() + 2*h.node.cfg.Times.Start + h.node.Timing.SilenceTimeout
	return h.node.RunPhase(record.PhaseWorkers, func() error {
		limited, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
		defer cancel()
		err := h.roleHead().AwaitKind(limited, roles.BuiltInWorker)
		if errors.Is(err, errDeadline) {
			late := h.roleHead().LateNodes(roles.BuiltInWorker)
			return h.lateNodesFailure(within, late, "to be "+string(record.StateServiceUp))
		}
		if err != nil {
			return err
		}
		return h.awaitFrameworkMembers(ctx)
	})
}

// awaitSandboxes waits until the number of sandboxes that the gate requires are ready.
func (h *head) awaitSandboxes(ctx context.Context) error {
	// A node needs time to report that it is late.
	within := h.node.cfg.CheckTimeout() + h.node.cfg.Times.Start + h.node.Timing.SilenceTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	began := time.Now()
	err := h.roleHead().AwaitKind(ctx, roles.BuiltInSandbox)
	if !errors.Is(err, errDeadline) {
		return err
	}
	late := h.roleHead().LateNodes(roles.BuiltInSandbox)
	f := health.NewFailure(health.DeadlinePassed,
		"the gate requires the sandbox of %s, and after %s the sandbox of %s is not ready (--start-timeout=%s)",
		h.node.cfg.Sandbox.Require, textutil.RoundedDuration(time.Since(began), time.Minute), h.node.nodeNames(late),
		textutil.FlagDuration(h.node.cfg.Times.Start))
	f.Phase = record.PhaseSandbox
	return f
}

// awaitFrameworkMembers waits until the framework's own list of members, if it has one, contains
// every node.
func (h *head) awaitFrameworkMembers(ctx context.Context) error {
	members := make([]framework.Member, 0, h.membership.Count())
	for _, nodeIndex := range h.membership.MemberNodes() {
		members = append(members, framework.Member{NodeIndex: nodeIndex, Host: h.node.id.HostOf(nodeIndex)})
	}
	h.progress.pollingMembers.Store(true)
	defer h.progress.pollingMembers.Store(false)
	return h.running.cluster.AwaitMembers(ctx, members, h.node.cfg.Times.Start)
}

// serviceKind returns what the services of the head and of the workers are: commands of the user, or
// those of a framework.
func (n *node) serviceKind() launcher.ChildKind {
	if n.cfg.Framework.Name() == (framework.None{}).Name() {
		return launcher.ChildCommand
	}
	return launcher.ChildService
}

func (n *node) describeForFramework(f framework.Framework, slot *service.Slot) (framework.Node, error) {
	address, err := n.cfg.Address()
	if err != nil {
		return framework.Node{}, health.NewFailure(health.Launch, "%v; give --interface", err)
	}
	if slot == nil {
		slot = new(service.Slot) // the head, before a team has been chosen
	}
	temp, err := n.privateDir.EnsureShortDir(framework.TraitsOf(f).MaxTempDir)
	if n.RunCtx.Err() != nil {
		return framework.Node{}, context.Cause(n.RunCtx)
	}
	if err != nil {
		return framework.Node{}, health.NewFailure(health.CheckEnvironment,
			"cannot create a private directory on %s: %v", n.nodeName(n.id.NodeIndex), err)
	}
	self := framework.Node{
		RunName: n.Dir.Name(), TeamIndex: slot.Place, Size: slot.Size,
		LaunchIndex: n.id.NodeIndex, Host: n.id.Host, Address: address.Address,
		TempDir: temp, CPUs: n.id.CPUs, GPUs: n.id.GPUs,
		MaxMemory:    framework.GrantedMemory(n.cfg.Environ),
		NVLinkDomain: n.gpuMonitor.NVLinkDomain(), Environ: n.cfg.Environ,
	}
	env, err := n.privateDir.WriteCredentials(f, self, n.Dir.DeriveSecret(f.Name()))
	if err != nil {
		return self, health.NewFailure(health.ServiceDied,
			"cannot protect the services of %s from other users: %v", n.nodeName(n.id.NodeIndex), err)
	}
	self.Environ = envlist.With(self.Environ, env)
	return self, nil
}
