package daemon

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/instances"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/restart"
	"github.com/bringupd/bringupd/pkg/daemon/world"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// localWorld is a node's part of the world. It has the zero value if there are no ranks.
type localWorld struct {
	// the resources to which ranks can be bound; used only by the sequence
	layout         affinity.Node
	pmix           *world.PMIxStartup // used only by the sequence
	worldNode      atomic.Pointer[world.Node]
	rendezvousLink world.RendezvousLink

	restartLock  sync.Mutex
	rankRestarts []time.Time // when the ranks of flags were started again; guarded by restartLock
}

// rankRestartTimes returns when the ranks of flags were started again in this run.
func (n *node) rankRestartTimes() []time.Time {
	n.restartLock.Lock()
	defer n.restartLock.Unlock()
	return slices.Clone(n.rankRestarts)
}

// RanksStartAgain implements [instances.Host].
func (n *node) RanksStartAgain(f record.Failure, generation int) bool {
	again, _ := restart.DecideRanks(&n.cfg, f, generation, nil, n.EndRequested.Load())
	return again
}

// flagRanks decides for the head about the ranks of flags by a plan. It implements
// [instances.FlagRanks].
type flagRanks struct {
	*head
	plan *roles.Plan
}

// NewWorld implements [instances.FlagRanks].
func (h flagRanks) NewWorld(jobName string) *world.Head {
	return h.newFlagWorld(instances.PlaceFlagRanks(h.plan, h.node.cfg.World.MaxPerNode), jobName)
}

// DecideRestart implements [instances.FlagRanks].
func (h flagRanks) DecideRestart(
	f record.Failure, generation int,
) (message string, pause time.Duration, again bool) {
	if !h.drainGPUEvents(h.node.RunCtx) { // the failure of a GPU has ended the run
		return f.Message, 0, false
	}
	p := h.node.steps.Summary()
	decide := func() (bool, string) {
		return restart.DecideRanks(&h.node.cfg, f, generation, p, h.node.EndRequested.Load())
	}
	again, reason := decide()
	if !again && p != nil && !p.Gained {
		h.awaitFreshListing() // it has the last steps of other nodes
		p = h.node.steps.Summary()
		again, reason = decide()
	}
	if !again {
		return f.Message, 0, false
	}
	h.node.steps.ResetGained()
	return f.Message + "; " + reason, restart.RankPause(h.node.rankRestartTimes(), time.Now()), true
}

// checkRankResources verifies that the ranks fit on this node, and publishes how many do if the
// head's plan depends on that.
func (n *node) checkRankResources() (err error) {
	if !n.cfg.World.IsRequested() {
		return nil
	}
	n.pmix = n.startPMIx("pmix")
	if n.layout, err = n.cfg.Simulation.NodeResources(n.gpuMonitor.Topology(),
		launcher.EnvironmentOf(n.cfg.Environ)); err != nil {
		return health.NewFailure(health.Launch, "cannot run ranks on %s: %v", n.nodeName(n.id.NodeIndex), err)
	}
	count, err := n.cfg.World.NodeRanks(n.rankSlots())
	if err != nil {
		return health.NewFailure(health.Launch, "cannot run ranks on %s: %v", n.nodeName(n.id.NodeIndex), err)
	}
	if !n.cfg.World.NeedsSlotCounts() {
		return nil
	}
	return n.MarkName(signal.NodesDir, signal.SlotsName(n.id.NodeIndex, n.id.Size, count))
}

// startPMIx starts a PMIx server for the ranks of flags, with a directory of its own.
func (n *node) startPMIx(dirName string) *world.PMIxStartup {
	return world.StartPMIx(world.PMIxConfig{
		Config: &n.cfg, Argv: n.cfg.Driver, Environ: slices.Concat(n.cfg.Environ, n.cfg.World.Env),
		ServerNumber: n.id.NodeIndex,
		PrivateDir:   n.privateDir.EnsureDir, DirName: dirName,
	}, n.Background, n.Log)
}

// rankSlots returns the numbers of this node's resources for ranks. Cores are the visible ones, or
// the CPUs that the launcher has granted if these are more.
func (n *node) rankSlots() ranks.NodeSlots {
	return ranks.NodeSlots{
		GPUs: n.layout.CountSlots(affinity.PerGPU), NUMAs: n.layout.CountSlots(affinity.PerNUMA),
		Cores: max(n.layout.CountSlots(affinity.PerCore), n.id.CPUs), OwnGPUs: n.boundResources().GPU,
		NodeCPUs: n.layout.CountCPUs(),
		MoreCPUs: func(count int) string { return n.id.MoreCPUs(n.cfg.Environ, count) },
	}
}

// boundResources returns the kinds of resources to which ranks are bound: none if several daemons
// share this machine, because none knows what the others use.
func (n *node) boundResources() affinity.ResourceKinds {
	if n.id.LocalSize > 1 {
		return affinity.ResourceKinds{}
	}
	return n.cfg.World.Bind
}

// addWorldFacts adds to a plan of the ranks of flags what only the head knows: where they meet, and
// how often the job has been restarted. It keeps the port for them. Other plans stay as they are.
func (h *head) addWorldFacts(rec *roles.PlanRecord) error {
	if !h.node.cfg.World.IsRequested() || slices.Contains(rec.Without, roles.BuiltInRanks) {
		return nil
	}
	port, release, err := ranks.HoldPort()
	if err != nil {
		return health.NewFailure(health.Launch, "%v", err)
	}
	h.node.Background(func(context.Context) {
		<-h.node.EndKnownCtx.Done()
		release()
	})
	address, _ := h.node.cfg.Address() // without one, the run ends where a rank needs it
	rec.Offers[0].Address, rec.Offers[0].FirstPort = address.Address, port
	rec.RestartCount = max(h.node.cfg.Previous.History.Count, h.node.id.Attempt)
	return nil
}

// planWorld plans the ranks of flags on the nodes of the team, and publishes the plan, unless they
// were planned early. The open gate starts them.
func (h *head) planWorld(ctx context.Context) error {
	if !h.node.cfg.World.IsRequested() || h.running.world.Load() != nil {
		return nil
	}
	if h.node.cfg.World.NeedsSlotCounts() {
		within := h.node.cfg.CheckTimeout() + h.node.Timing.SilenceTimeout
		if err := h.awaitState(ctx, record.StateSlots, within); err != nil {
			return err
		}
	}
	counts, rec := h.nodeWatch.LastListing().SlotCounts(), h.teamRecord()
	fixed, _ := h.node.cfg.World.FixedPerNode()
	var slots []int
	for place := range rec.Offers {
		slots = append(slots, cmp.Or(fixed, counts[rec.Offers[place].NodeIndex]))
		rec.Offers[place].Slots = slots[place]
	}
	if err := h.node.cfg.World.CheckTotal(slots); err != nil {
		return health.NewFailure(health.Launch, "%v", err)
	}
	if err := h.addWorldFacts(rec); err != nil {
		return err
	}
	return h.useTeamPlan(ctx, rec)
}

// openFlagWorld opens the head's side of the world of the ranks of flags.
func (h *head) openFlagWorld(rec *world.Placement) {
	if h.node.cfg.World.Total == 0 { // a user who has requested a total expects different numbers
		team := h.membership.MemberNodes()
		if uneven := ranks.NewPlan(rec.PerNode).DescribeUneven(func(places []int) string {
			for i, place := range places {
				places[i] = team[place]
			}
			return h.node.nodeNames(places)
		}); uneven != "" {
			h.node.Log.Warn(uneven)
		}
	}
	if idle := launcher.IdleNodesHint(launcher.EnvironmentOf(h.node.cfg.Environ)); idle != "" {
		h.node.Log.Warn(idle)
	}
	first := h.newFlagWorld(rec, world.RunID(h.node.Dir.Name(), h.node.Dir.Nonce()).JobName)
	h.rendezvous.Add("", rendezvous.World{Head: first.Rendezvous, Nodes: h.membership.MemberNodes})
}

// newFlagWorld returns the head's side of the world of the ranks of flags, or of a later generation
// of them.
func (h *head) newFlagWorld(rec *world.Placement, jobName string) *world.Head {
	next := world.NewHead(world.HeadConfig{
		Placement: rec, JobName: jobName,
		Oversubscribe: h.node.cfg.World.Oversubscribe, Trail: h.node.Events, Log: h.node.Log,
		Background: h.node.Background,
	})
	h.running.world.Store(next)
	return next
}

// primariesEnd returns the orderly outcome after all primary roles have ended. Its code is that of the
// first rank that has failed, if the others have gone on.
func (h *head) primariesEnd(ctx context.Context, why string) error {
	failed, err := h.roleHead().FailedRanks(ctx)
	if err != nil {
		return err
	}
	end := &lifecycle.Outcome{Orderly: true, Name: health.DriverOutcomeName, Reason: why}
	switch newest := h.running.world.Load(); {
	case newest != nil:
		end.Code, end.Reason = ranks.WorldExitCode(failed, newest.RankCount)
	case len(failed) > 0:
		end.Code, end.Reason = ranks.WorldExitCode(failed, 0)
	}
	return end
}

// setRendezvousLink sets the way from the ranks of the head's node to the worlds of the run.
func (h *head) setRendezvousLink() {
	h.node.rendezvousLink.Dial = func(ctx context.Context, key string) (io.ReadWriteCloser, error) {
		return h.rendezvous.LocalDialer(key, 0, h.node.Background)(ctx)
	}
	h.node.rendezvousLink.Await = func(context.Context) error {
		if h.peerLinks == nil && h.membership.Count() > 1 {
			return health.NewFailure(health.Launch, world.NoPeerLinks)
		}
		return nil
	}
}

// setRendezvousLink sets the way from the ranks of this node to the worlds of the run: the peer link.
func (w *worker) setRendezvousLink() {
	w.node.rendezvousLink.Dial = func(ctx context.Context, key string) (io.ReadWriteCloser, error) {
		if w.link == nil || !ctxutil.AwaitDone(ctx, w.link.connected) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return rendezvous.DialWorld(key, w.headDialer(peerlink.RendezvousStream))(ctx)
	}
	w.node.rendezvousLink.Await = func(ctx context.Context) error {
		if w.link == nil {
			return health.NewFailure(health.Launch, world.NoPeerLinks)
		}
		return w.awaitFirstConnection(ctx, world.NoDataExchange, "")
	}
}

// watchRankLinks ends the run if the ranks of flags exchange data, and not all nodes have a peer link, which
// carries it, within the peer timeout.
func (h *head) watchRankLinks(ctx context.Context) {
	if h.peerLinks == nil {
		return
	}
	deadline := time.Now().Add(h.node.cfg.Times.Peer)
	for used := ctxutil.AwaitDone(ctx, h.running.world.Load().Rendezvous.FirstUse()); used; {
		without := slices.DeleteFunc(h.membership.MemberNodes(), func(node int) bool {
			return node == 0 || h.node.Links.Peer(node, time.Now()).Known
		})
		if len(without) == 0 {
			return
		}
		if time.Now().After(deadline) {
			h.node.CancelRun(health.NewFailure(health.Launch,
				"%s: %s did not establish a peer link to the head within %s; %s",
				world.NoDataExchange, h.node.nodeNames(without), h.node.cfg.Times.Peer, openPortsAdvice))
			return
		}
		used = ctxutil.SleepContext(ctx, h.node.cfg.Times.LinkHeartbeatInterval())
	}
}

// OpenFlagWorld implements [instances.Host].
func (n *node) OpenFlagWorld(
	life context.Context, rec *world.Placement, nodeIndex, number, generation int,
) *world.Node {
	n.steps.StartRanks(number, generation)
	id, pmix := instances.FlagGenerationID(n.Dir, number, generation), n.pmix
	if generation > 0 {
		n.restartLock.Lock()
		n.rankRestarts = append(n.rankRestarts, time.Now())
		n.restartLock.Unlock()
		pmix = n.pmix.Renew(func() *world.PMIxStartup { return n.startPMIx("pmix" + id.Key) })
	}
	place := &service.Slot{Place: nodeIndex, Size: len(rec.Hosts)}
	here := world.OpenNode(n.RunCtx, world.Config{
		NodeConfig: n.WorldConfig().Within(life), ID: id, Placement: rec, NodeIndex: nodeIndex, PMIx: pmix,
		BaseEnv: func() []string { return n.rankEnv(place, rec, generation) },
	})
	n.worldNode.Store(here)
	return here
}

// StopFlagRanks implements [instances.Host].
func (n *node) StopFlagRanks() {
	n.stopRanks(context.Cause(n.RunCtx))
	if n.RunCtx.Err() == nil { // others may follow them
		n.children.RemoveSelected(service.IsUserProgram)
	}
}

// WorldConfig returns what configures the worlds of this node. It implements [instances.Host].
func (n *node) WorldConfig() world.NodeConfig {
	return world.NodeConfig{
		Config: &n.cfg, RunDir: n.Dir.Path(), Layout: n.layout, BindKinds: n.boundResources(),
		Children: n.children, Background: n.Background,
		Trail: n.Events, Log: n.Log, Warn: n.nodeEvents.Warn, SocketDir: n.privateDir.EnsureSocketDir,
		RendezvousLink: n.rendezvousLink,
	}
}

// rankEnv returns the environment that all ranks of this node have in common in a generation.
func (n *node) rankEnv(place *service.Slot, rec *world.Placement, generation int) []string {
	team := service.Team{Hosts: rec.Hosts}
	if known := n.serviceInfo.Load(); known != nil {
		team.Endpoint = known.Endpoint
	}
	return n.environ(launcher.ChildRank, n.cfg.Environ, place, &team,
		map[string]string{service.AttemptVariable: strconv.Itoa(n.id.Attempt + generation)})
}

// stopRanks ends the ranks of this node. Their grace period depends on why, the reason.
func (n *node) stopRanks(why error) {
	n.children.StopSelected(n.rankGracePeriod(why), service.IsUserProgram)
}

// rankGracePeriod returns the grace period of the ranks after TERM, which depends on why they are
// ended. It is 0 if there are no ranks.
func (n *node) rankGracePeriod(why error) time.Duration {
	switch {
	case !n.cfg.World.IsRequested():
		return 0
	case why == nil: // they start again
		return n.cfg.Times.DriverGracePeriod(false)
	}
	if end, ok := errors.AsType[*lifecycle.Outcome](why); ok {
		return n.cfg.Times.DriverGracePeriod(health.IsIsolation(end.Cause))
	}
	return n.cfg.Times.DriverGracePeriod(health.IsIsolation(&health.AsFailure(why).Failure))
}
