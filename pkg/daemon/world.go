package daemon

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
	"github.com/bringupd/bringupd/pkg/why"
	"github.com/bringupd/bringupd/pkg/world"
)

// local is a node's part of the world. It has the zero value if there are no ranks.
type local struct {
	layout binding.Node // the resources to which ranks can be bound; used only by the sequence
	pmix   *world.PMIx  // used only by the sequence
	here   atomic.Pointer[world.Node]
	call   func(ctx context.Context) (io.ReadWriteCloser, error) // connects to the rendezvous
	linked func(ctx context.Context) error                       // see world.Config.Linked
}

// survey determines this node's resources for ranks, and verifies that the requested number of
// ranks fits. It publishes how many ranks the node can run if the head's plan depends on that.
func (n *node) survey() (err error) {
	if !n.cfg.World.Wanted() {
		return nil
	}
	n.pmix = world.StartPMIx(&n.cfg, n.private.Dir, n.Background, n.Log)
	if n.layout, err = n.cfg.Play.Layout(n.cards.Topology(), roles.EnvironmentOf(n.cfg.Environ)); err != nil {
		return health.Failed(health.Launch, "cannot run ranks on %s: %v", n.name(n.id.Rank), err)
	}
	count, err := n.cfg.World.Here(n.slots())
	if err != nil {
		return health.Failed(health.Launch, "cannot run ranks on %s: %v", n.name(n.id.Rank), err)
	}
	if !n.cfg.World.Counted() {
		return nil
	}
	return n.Mark(signal.Nodes, signal.SlotsName(n.id.Rank, n.id.Size, count))
}

// slots returns the numbers of this node's resources for ranks. Cores are the visible ones, or the
// CPUs that the launcher has granted if these are more.
func (n *node) slots() ranks.Slots {
	return ranks.Slots{
		GPUs: n.layout.Slots(binding.PerGPU), NUMAs: n.layout.Slots(binding.PerNUMA),
		Cores: max(n.layout.Slots(binding.PerCore), n.id.CPUs), Bound: n.kinds().GPU,
	}
}

// kinds returns the kinds of resources to which ranks are bound. It returns none if several daemons
// share this machine, because no daemon knows which resources the ranks of the others use.
func (n *node) kinds() binding.Kinds {
	if n.id.LocalSize > 1 {
		return binding.Kinds{}
	}
	return n.cfg.World.Bind
}

// planRanks decides on which nodes the ranks run, prepares the head's side of the world, and
// publishes the plan. It does nothing if there are no ranks.
func (h *head) planRanks(ctx context.Context) error {
	if !h.cfg.World.Wanted() {
		return nil
	}
	// Find out how many ranks each node of the team can run.
	perNode := make([]int, h.roster.Count())
	if h.cfg.World.Counted() {
		if err := h.awaitAll(ctx, signal.Slots, h.cfg.CheckTime()+h.tempo.Silent); err != nil {
			return err
		}
	}
	slots := h.nodes.Last().Slots()
	for place, node := range h.roster.Ranks() {
		perNode[place] = slots[node]
		if !h.cfg.World.Counted() {
			perNode[place], _ = h.cfg.World.Here(h.slots()) // [node.survey] has checked the error
		}
	}
	// Make the plan.
	plan, err := ranks.MakePlan(h.cfg.World.Wish, perNode)
	if err != nil {
		return health.Failed(health.Launch, "%v", err)
	}
	team := h.roster.Ranks()
	uneven := plan.Uneven(func(nodes []int) string {
		for i, place := range nodes {
			nodes[i] = team[place]
		}
		return h.hostsOf(nodes)
	})
	if uneven != "" && h.cfg.World.Total == 0 { // a user who has requested a total expects that
		h.Log.Warn(uneven)
	}
	// Reserve the port of the master address until the end of the run is known.
	address, _ := h.cfg.Address()
	port, release, err := ranks.HoldPort()
	if err != nil {
		return health.Failed(health.Launch, "%v", err)
	}
	h.Background(func(context.Context) {
		<-h.Ended.Done()
		release()
	})
	// Open the rendezvous of the ranks.
	h.world = world.NewHead(world.HeadConfig{
		Wish: h.cfg.World.Wish, Plan: plan, Room: perNode, Hosts: h.assembly.teamHosts(), Environ: h.cfg.Environ, Trail: h.Trail, Log: h.Log, Background: h.Background,
		Master: ranks.Meeting{Address: address, Port: port, Run: h.Dir.Name()}, Job: world.JobName(h.Dir.Name(), h.Dir.Nonce()),
	})
	h.deaths.hall.Open(h.world.Meet)
	h.call = h.deaths.hall.Dial(0, h.Background)
	h.linked = func(context.Context) error {
		if h.lines == nil && h.roster.Count() > 1 {
			return health.Failed(health.Launch, world.Unlinked)
		}
		return nil
	}
	return h.Publish(signal.Control, signal.NameRanks, h.world.Record, false)
}

// driveWorld runs the world to its end: it runs the head's own ranks, and waits for those of the
// other nodes, which start them when they see the open gate. Its error is an orderly *run.Ending if
// all ranks have ended, and otherwise the cause of the end of the run.
func (h *head) driveWorld(ctx context.Context) error {
	parts, own := errgroup.WithContext(ctx)
	parts.Go(func() error { return h.runRanks(own, &team.Seat{Size: h.roster.Count()}, h.world.Record) })
	parts.Go(func() error { return h.awaitLinks(own) })
	// Wait until all ranks have ended, or none makes progress any more.
	parts.Go(func() error {
		last, err := h.nodes.Follow(own, func(l signal.Listing) bool { return len(h.roster.Missing(l, signal.Ended)) == 0 || h.hangs(l) })
		if err == nil && h.hangs(last) {
			return world.Hang{
				Dir: h.Dir.Path(), Timeout: h.cfg.World.Hang, OutputOnly: h.cfg.World.HangOutput,
				LogName: h.children.LogName("daemon"), Log: h.Log,
			}.Failure(own)
		}
		return cmp.Or(err, h.world.Await(own), errWorldOver)
	})
	if err := parts.Wait(); !errors.Is(err, errWorldOver) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	code, why, err := h.worldsEnd(ctx)
	if err != nil {
		return err
	}
	return &run.Ending{Orderly: true, Word: health.Driven, Code: code, Why: why}
}

// errWorldOver ends the parts of driveWorld when all ranks have ended.
var errWorldOver = errors.New("all ranks have ended")

// joinWorld waits for the gate and runs this node's ranks to their end. It does nothing if there
// are no ranks, or if this node has no place in the team.
func (w *worker) joinWorld(ctx context.Context) error {
	if !w.cfg.World.Wanted() {
		return nil
	}
	_, err := w.Control.Follow(ctx, func(l signal.Listing) bool { return l.Has(signal.NameGo) })
	seat := w.post.Seat.Load()
	if err != nil || seat == nil {
		return context.Cause(ctx)
	}
	var record signal.RanksRecord
	if err := w.Dir.Read(ctx, signal.Control, signal.NameRanks, &record); err != nil {
		return health.AsFailure(err)
	}
	// Both functions need the peer link.
	w.call = func(ctx context.Context) (io.ReadWriteCloser, error) {
		if w.line == nil || !pause.Await(ctx, w.line.up) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return w.caller(lifeline.ForMeeting)(ctx)
	}
	w.linked = func(ctx context.Context) error {
		if w.line == nil {
			return health.Failed(health.Launch, world.Unlinked)
		}
		return w.held(ctx, world.NoData, "")
	}
	return w.runRanks(ctx, seat, &record)
}

// awaitLinks waits until ranks exchange data, and then until all nodes have a peer link, which
// carries the data. Its failure names the nodes that have none when the peer timeout from the
// opening of the gate is over.
func (h *head) awaitLinks(ctx context.Context) error {
	if h.lines == nil {
		return nil
	}
	without := h.world.AwaitLinks(ctx, h.cfg.Times.Peer, h.cfg.Times.LineBeat(), func() []int {
		return slices.DeleteFunc(h.roster.Ranks(), func(rank int) bool {
			_, ever := h.lines.Of(rank)
			return ever || rank == 0
		})
	})
	if len(without) == 0 {
		return nil
	}
	return health.Failed(health.Launch, "%s: %s made no peer link to the head within %s; %s",
		world.NoData, h.hostsOf(without), h.cfg.Times.Peer, openPorts)
}

// runRanks runs the ranks of this node's place in the team to their end, publishes their exits, and
// continues to run ranks that they spawn until ctx ends. Ranks that are left when it returns are
// ended in the background.
func (n *node) runRanks(ctx context.Context, place *team.Seat, record *signal.RanksRecord) error {
	here := world.Open(ctx, world.Config{
		Config: &n.cfg, Record: record, Place: place.Rank, Host: n.id.Host, Dir: n.Dir.Path(), Job: world.JobName(n.Dir.Name(), n.Dir.Nonce()), Base: func() []string { return n.ranksEnv(place, record) },
		Layout: n.layout, Kinds: n.kinds(), PMIx: n.pmix, Children: n.children, Background: n.Background, Trail: n.Trail, Log: n.Log,
		Private: n.private.Dir, Dial: n.call, Linked: n.linked,
	})
	n.here.Store(here)
	starting, started := n.lagging(ctx)
	stop := n.vigil(here).Begin(ctx)
	err := here.Run(starting, func(exits []signal.RankExit) error {
		started()
		stop()
		return n.Publish(signal.Nodes, signal.NodeName(n.id.Rank, n.id.Size, signal.Ended), &signal.EndedRecord{Exits: exits}, false)
	})
	started()
	stop()
	n.Background(func(context.Context) { n.stopUsers(err) })
	return err
}

// ranksEnv returns the environment that all ranks of this node have in common.
func (n *node) ranksEnv(place *team.Seat, record *signal.RanksRecord) []string {
	var endpoint framework.Endpoint
	if known := n.surroundings.Load(); known != nil {
		endpoint = known.endpoint
	}
	return n.driverEnv(n.childEnv(n.cfg.Environ, place), record.Hosts, endpoint)
}

// stopUsers ends the ranks of this node. Their grace period depends on why, the reason.
func (n *node) stopUsers(why error) {
	n.children.Stop(n.graceOfRanks(why), service.IsUsers)
}

// hushRanks waits until the output of this node's ranks has been forwarded, but gives up if the
// output is not read.
func (n *node) hushRanks() {
	here := n.here.Load()
	if here == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(n.Hurry, unread, errDeadline)
	defer cancel()
	if err := here.Close(ctx); err != nil {
		n.Log.Warn("not all that the ranks have printed was passed on: it is in their logs", zap.Error(err))
	}
}

// unread is how long hushRanks waits before it gives up output that is not read. The logs of the
// ranks have it in any case.
const unread = 10 * time.Second

// graceOfRanks returns the grace period of the ranks after TERM, which depends on why they are
// ended. It is 0 if there are no ranks.
func (n *node) graceOfRanks(why error) time.Duration {
	if !n.cfg.World.Wanted() {
		return 0
	}
	if end, ok := errors.AsType[*run.Ending](why); ok {
		return n.cfg.Times.GraceOfDriver(end.Gentle || end.Orderly)
	}
	return n.cfg.Times.GraceOfDriver(health.Gentle(health.Kind(health.AsFailure(why).Kind)))
}

// worldsEnd returns the exit code of a world after all of its ranks have ended, and the reason for
// it.
func (h *head) worldsEnd(ctx context.Context) (code int, why string, err error) {
	var failed []signal.RankExit
	for _, node := range h.roster.Ranks() {
		if !h.cfg.World.GoOn { // no rank has failed: that would have ended the run
			break
		}
		var record signal.EndedRecord
		if err := h.Dir.Read(ctx, signal.Nodes, signal.NodeName(node, h.id.Size, signal.Ended), &record); err != nil {
			return 0, "", err
		}
		failed = append(failed, ranks.Failed(record.Exits)...)
	}
	code, why = ranks.Conclude(failed, ranks.PlanOf(h.world.Record).Ranks())
	return code, why, nil
}

// vigil returns the hang detector of this node. It publishes a record each time all ranks of the
// node have become idle, and each time one has become active again. The number of the record shows
// which.
func (n *node) vigil(here *world.Node) why.Vigil {
	told := 0
	return why.Vigil{
		Timeout: n.cfg.World.Hang, OutputOnly: n.cfg.World.HangOutput, Ranks: here.Running,
		Tell: func(bool) {
			told++
			n.Logged(n.Mark(signal.Nodes, signal.IdleName(n.id.Rank, n.id.Size, told)))
		},
	}
}

// hangs reports whether all nodes with running ranks have reported that their ranks are idle. It is
// false if hang detection is off.
func (h *head) hangs(l signal.Listing) bool {
	idle, busy := l.IdleNodes(), h.roster.Missing(l, signal.Ended)
	return h.cfg.World.Hang > 0 && len(busy) > 0 && len(signal.Without(busy, idle)) == 0
}
