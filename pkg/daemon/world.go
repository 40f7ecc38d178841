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

// local is what a node has of the world. Before there are ranks it is nothing.
type local struct {
	layout binding.Node // what there is for ranks; the sequence's
	pmix   *world.PMIx  // the sequence's
	here   atomic.Pointer[world.Node]
	call   func(ctx context.Context) (io.ReadWriteCloser, error) // to where ranks meet
	linked func(ctx context.Context) error                       // see world.Config
}

// survey sees what this node has for ranks, and how many it may have, which it tells
// the head where the plan is made of it.
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

// slots are what this node has for ranks: as many cores as can be seen, or as the
// launcher has granted CPUs.
func (n *node) slots() ranks.Slots {
	return ranks.Slots{
		GPUs: n.layout.Slots(binding.PerGPU), NUMAs: n.layout.Slots(binding.PerNUMA),
		Cores: max(n.layout.Slots(binding.PerCore), n.id.CPUs), Bound: n.kinds().GPU,
	}
}

// kinds are what ranks are bound to: nothing where several daemons have this machine,
// none of which knows what the others' ranks have of it.
func (n *node) kinds() binding.Kinds {
	if n.id.LocalSize > 1 {
		return binding.Kinds{}
	}
	return n.cfg.World.Bind
}

// planRanks says which ranks are to run where, for all.
func (h *head) planRanks(ctx context.Context) error {
	if !h.cfg.World.Wanted() {
		return nil
	}
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
			perNode[place], _ = h.cfg.World.Here(h.slots()) // which has passed in offerSlots
		}
	}
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
	if uneven != "" && h.cfg.World.Total == 0 { // who tells how many in all knows
		h.Log.Warn(uneven)
	}
	address, _ := h.cfg.Address()
	port, release, err := ranks.HoldPort()
	if err != nil {
		return health.Failed(health.Launch, "%v", err)
	}
	h.Background(func(context.Context) {
		<-h.Ended.Done()
		release()
	})
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

// driveWorld runs the world to its end: the head's own ranks, and those of the others,
// which they start when they see the gate open. Its error is the orderly *run.Ending, or
// why the run ended instead.
func (h *head) driveWorld(ctx context.Context) error {
	parts, own := errgroup.WithContext(ctx)
	parts.Go(func() error { return h.runRanks(own, &team.Seat{Size: h.roster.Count()}, h.world.Record) })
	parts.Go(func() error { return h.awaitLinks(own) })
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

// errWorldOver is why the parts of a world end that goes well.
var errWorldOver = errors.New("all ranks have ended")

// joinWorld runs this node's ranks once the gate is open.
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

// awaitLinks waits until ranks exchange data, and from then on until all nodes have made a peer
// link. Its error names those that have made none within the peer timeout from the gate.
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

// runRanks runs the ranks of this node's place in the team to their end, tells, and
// goes on for those that they spawn until ctx ends. Those that run on when the run is
// over are told to end.
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

// ranksEnv is what the environments of ranks are made on top of.
func (n *node) ranksEnv(place *team.Seat, record *signal.RanksRecord) []string {
	var endpoint framework.Endpoint
	if known := n.surroundings.Load(); known != nil {
		endpoint = known.endpoint
	}
	return n.driverEnv(n.childEnv(n.cfg.Environ, place), record.Hosts, endpoint)
}

// stopUsers ends the ranks of this node, which have the driver's grace.
func (n *node) stopUsers(why error) {
	n.children.Stop(n.graceOfRanks(why), service.IsUsers)
}

// hushRanks waits until what the ranks of this node have printed was passed on, where
// somebody reads it.
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

// unread is for how long nobody needs to take what ranks have printed, until it is left.
const unread = 10 * time.Second

// graceOfRanks is how long ranks have after TERM, by why they are ended; 0 where there
// are none.
func (n *node) graceOfRanks(why error) time.Duration {
	if !n.cfg.World.Wanted() {
		return 0
	}
	if end, ok := errors.AsType[*run.Ending](why); ok {
		return n.cfg.Times.GraceOfDriver(end.Gentle || end.Orderly)
	}
	return n.cfg.Times.GraceOfDriver(health.Gentle(health.Kind(health.AsFailure(why).Kind)))
}

// worldsEnd is by which code a world ends whose ranks have all ended, and why.
func (h *head) worldsEnd(ctx context.Context) (code int, why string, err error) {
	var failed []signal.RankExit
	for _, node := range h.roster.Ranks() {
		if !h.cfg.World.GoOn { // who had failed would have ended it
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

// vigil returns what notices that no rank of this node does anything.
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

// hangs reports whether no rank of any node does anything.
func (h *head) hangs(l signal.Listing) bool {
	idle, busy := l.IdleNodes(), h.roster.Missing(l, signal.Ended)
	return h.cfg.World.Hang > 0 && len(busy) > 0 && len(signal.Without(busy, idle)) == 0
}
