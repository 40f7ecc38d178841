package instances

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/daemon/world"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// FlagRanks is what the head of a run decides about the ranks of flags.
type FlagRanks interface {
	// NewWorld returns the head's side of the world of a later generation, which has this name for
	// MPI.
	NewWorld(jobName string) *world.Head
	// DecideRestart decides whether all ranks start again after a failure, and after which pause.
	// They have been started again generation times. It returns the message of the failure, with
	// what follows.
	DecideRestart(f record.Failure, generation int) (message string, pause time.Duration, again bool)
}

// HeadConfig configures the part of the head.
type HeadConfig struct {
	*lifecycle.Publisher
	*planning.NodeChoice     // the first plan, whose record has been published
	Size                 int // number of nodes of the launch
	Defs                 []roles.Definition
	Steps                []string // further job steps, whose daemons start roles
	// SilentDelay is how long after its loss the daemon of a silent node may still serve. A spare
	// takes its place after that and the grace period of the processes.
	SilentDelay time.Duration
	Links       *health.Links // nil if there are no peer links
	HasStandIns bool          // the processes are stand-ins, which never listen
	NodeWatch   *signal.Watch
	Hang        HangConfig
	Worlds      *rendezvous.Worlds // gets the worlds of the instances that span several nodes
	// Dropped returns the nodes that cannot be spares although they have made offers; nil: no node that
	// makes an offer after the plan is a spare.
	Dropped func() []record.DroppedNode
	// IsHeadServiceUp reports whether the built-in service of the head is up; nil if there is none.
	IsHeadServiceUp func() bool
	Failed          func(cause record.Failure, at time.Time)
	FlagRanks       FlagRanks
	// IsBusy reports whether the run does something besides its roles, such as a command of
	// bringupd exec; nil: it never does.
	IsBusy func() bool
}

// instanceState is what the head knows of an instance and of its newest world.
type instanceState struct {
	*roles.History
	hungBefore int              // the newest generation that was found to hang, plus 1; 0: none
	worldKey   string           // its newest world's; empty: none
	world      rendezvous.World // the newest
}

// Head decides for the run when a role starts, whether it has enough instances, and when the run is
// over. It collects what the nodes publish and what it has decided itself as the evidence of each
// instance, from which [roles.Fold] determines its state. What follows from the states is found anew
// after each change, so that no event depends on another one having been handled before it.
type Head struct {
	cfg HeadConfig

	offers map[int]bool // nodes whose offers are known; only Follow uses it

	mu         sync.Mutex
	spares     []roles.NodeFacts        // those that are left; guarded by mu
	lost       map[int]bool             // members whose daemons are lost; guarded by mu
	vacancies  []*vacancy               // places that spares are about to take; guarded by mu
	plan       *roles.PlanRecord        // the newest; guarded by mu
	number     int                      // the newest plan's; guarded by mu
	instances  []*instanceState         // ordered by number; guarded by mu
	gateOpen   bool                     // guarded by mu
	tolerated  []toleratedExit          // guarded by mu
	failures   map[string]*roleFailures // each role's; guarded by mu
	live       liveList                 // guarded by mu
	publishing ctxutil.Turn             // held while a list of live instances is published
	nextList   int                      // its number; guarded by publishing
	isPlanning bool                     // a plan is being published; guarded by mu
	changed    chan struct{}            // closed and replaced at each change; guarded by mu
}

// NewHead returns the part of the head. Nothing runs yet.
func NewHead(cfg HeadConfig) *Head {
	h := &Head{
		cfg: cfg, failures: make(map[string]*roleFailures), changed: make(chan struct{}),
		spares: slices.Clone(cfg.Spares), plan: cfg.Record, number: cfg.Record.Number,
		publishing: make(ctxutil.Turn, 1), live: liveList{plan: cfg.Record.Number},
		lost: make(map[int]bool), offers: make(map[int]bool),
	}
	members := planning.MembersOf(cfg.Record.Offers)
	for _, node := range slices.Concat(members, planning.MembersOf(cfg.Spares)) {
		h.offers[node] = true
	}
	for i := range cfg.Plan.Roles {
		role := &cfg.Plan.Roles[i]
		h.failures[role.Name] = new(roleFailures)
		for j := range role.Instances {
			history := roles.NewHistory(role, &role.Instances[j], cfg.Record, h.startRule(role))
			h.instances = append(h.instances, &instanceState{History: history})
		}
	}
	cfg.Worlds.SetFinder(h.findWorld)
	return h
}

// WarnIdleGPUs logs a warning about GPUs that no process of the first plan gets.
func (h *Head) WarnIdleGPUs() {
	if idle := h.cfg.Plan.IdleGPUs(); idle != "" && roles.HasNamed(h.cfg.Defs) {
		h.cfg.Log.Warn("no process gets " + idle + ": give a role gpus, or per-node: gpu")
	}
}

// memberOf returns the member index of the daemon that starts the processes of a role on a node.
func (h *Head) memberOf(node int, role *roles.RolePlan) int {
	return record.MemberIndex(node, 1+slices.Index(h.cfg.Steps, role.Program.Step), h.cfg.Size)
}

// Follow handles what the nodes publish about their instances, until ctx ends.
func (h *Head) Follow(ctx context.Context) {
	for _, task := range []func(context.Context){h.publishLive, h.followHangs, h.watchStall} {
		h.cfg.Background(func(context.Context) { task(ctx) })
	}
	_, _ = h.cfg.NodeWatch.FollowListings(ctx, func(l signal.Listing) bool {
		for _, exit := range h.addMarks(slices.Concat(l.Instances(), h.serviceMarks(l)), l.SeenAt) {
			h.handleExit(ctx, exit, l.SeenAt)
		}
		if done := append(l.NodesIn(record.StateDone), l.OfSteps().NodesIn(record.StateDone)...); len(done) > 0 {
			h.addDone(done)
		}
		h.addSpares(l)
		h.startRoles(ctx)
		h.advance()
		return false
	})
}

// addMarks adds the marks of a listing to the evidence, and returns the exits that have not been
// handled yet.
func (h *Head) addMarks(marks []record.InstanceMark, at time.Time) (exits []record.InstanceMark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed := make(map[*roles.RolePlan]bool)
	for _, mark := range marks {
		if mark.Instance >= len(h.instances) {
			continue
		}
		state := h.instances[mark.Instance]
		isNew, isExit := state.AddMark(mark)
		if isNew {
			changed[state.Role] = true
		}
		if isExit {
			exits = append(exits, mark)
		}
	}
	for role := range changed {
		if h.count(role).Down == 0 {
			h.failures[role.Name].Record(role, 0, at) // all are up again
		}
	}
	if len(changed) > 0 {
		h.wake()
	}
	return exits
}

// update changes the state of instances, and wakes everything that waits for a change.
func (h *Head) update(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	h.wake()
}

// wake wakes everything that waits for a change. The caller holds [Head.mu].
func (h *Head) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// await waits until a condition on the state of the instances holds, or ctx ends. It reports whether
// it holds. The condition is called with the lock held.
func (h *Head) await(ctx context.Context, holds func() bool) bool {
	for {
		h.mu.Lock()
		ok, changed := holds(), h.changed
		h.mu.Unlock()
		if ok {
			return true
		}
		if !ctxutil.AwaitDone(ctx, changed) {
			return false
		}
	}
}

// instancesOf returns the states of a role's instances. The caller holds [Head.mu].
func (h *Head) instancesOf(role *roles.RolePlan) []*instanceState {
	if len(role.Instances) == 0 {
		return nil
	}
	first := role.Instances[0].Number
	return h.instances[first : first+len(role.Instances)]
}

// count counts a role's instances by their states. The caller holds [Head.mu].
func (h *Head) count(role *roles.RolePlan) (c roles.Count) {
	for _, state := range h.instancesOf(role) {
		c.Add(state.InstanceState)
	}
	return c
}

// isSatisfied reports whether a role has what the gate and the roles after it require. The caller
// holds [Head.mu].
func (h *Head) isSatisfied(role *roles.RolePlan) bool { return role.IsSatisfied(h.count(role)) }

// Progress returns how far the instances of each role have come.
func (h *Head) Progress() (all []roles.Progress) {
	joined := h.cfg.NodeWatch.LastListing().OfSteps().NodesIn(record.StateJoined)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.cfg.Plan.Roles {
		shown, hasProcesses := roles.WithProcesses(&h.cfg.Plan.Roles[i])
		if !hasProcesses {
			continue
		}
		progress := roles.Progress{RolePlan: shown}
		for j := range shown.Instances {
			state := h.instances[shown.Instances[j].Number]
			progress.AddInstance(state.Instance, state.InstanceState, state.Evidence.Nodes, h.cfg.Size,
				state.EnteredAt)
		}
		for j := range progress.Late {
			late := &progress.Late[j]
			member := h.memberOf(late.Node, progress.RolePlan)
			if progress.Program.Step != "" && len(signal.WithoutNodes([]int{member}, joined)) > 0 {
				late.Last = progress.MissingStep()
			}
		}
		all = append(all, progress)
	}
	return all
}

// hasStarted reports whether a role has been started. The caller holds [Head.mu].
func (h *Head) hasStarted(role *roles.RolePlan) bool {
	of := h.instancesOf(role)
	return len(of) == 0 || of[0].Evidence.Started
}

// startRoles starts the roles whose predecessors have what they require. Before that it publishes
// which instances are ready.
func (h *Head) startRoles(ctx context.Context) {
	if h.cfg.RunCtx.Err() != nil {
		return
	}
	var starts []string
	h.mu.Lock()
	for i := range h.cfg.Plan.Roles {
		role := &h.cfg.Plan.Roles[i]
		lacks := func(name string) bool { return !h.isSatisfied(h.cfg.Plan.FindRole(name)) }
		if h.startRule(role) != roles.StartByOrder || h.hasStarted(role) || slices.ContainsFunc(role.After, lacks) {
			continue
		}
		h.setStarted(role)
		starts = append(starts, signal.StartName(role.Name))
	}
	h.mu.Unlock()
	if len(starts) == 0 {
		return
	}
	h.publishList(ctx)
	h.order(starts...)
}

// startRule returns what starts a role.
func (h *Head) startRule(role *roles.RolePlan) roles.StartRule {
	return roles.StartRuleOf(h.cfg.Defs, role.Definition, h.cfg.Record.Early)
}

// setStarted records that a role has been started. The caller holds [Head.mu].
func (h *Head) setStarted(role *roles.RolePlan) {
	for _, state := range h.instancesOf(role) {
		state.Start()
	}
}

// OpenGate publishes which instances are ready, for the roles that the open gate starts, and records
// that these start. The caller opens the gate next.
func (h *Head) OpenGate(ctx context.Context) {
	h.publishList(ctx)
	h.update(func() {
		h.gateOpen = true
		for i := range h.cfg.Plan.Roles {
			if role := &h.cfg.Plan.Roles[i]; h.startRule(role) == roles.StartAtGate {
				h.setStarted(role)
			}
		}
	})
}

// AwaitGate waits until all roles that are not primary have what they require. It returns the cause
// if ctx ends first.
func (h *Head) AwaitGate(ctx context.Context) error {
	return h.awaitSatisfied(ctx, func(role *roles.RolePlan) bool { return !role.Primary })
}

// awaitSatisfied waits until all roles that match have what they require.
func (h *Head) awaitSatisfied(ctx context.Context, match func(*roles.RolePlan) bool) error {
	areReady := h.await(ctx, func() bool {
		for i := range h.cfg.Plan.Roles {
			if role := &h.cfg.Plan.Roles[i]; match(role) && !h.isSatisfied(role) {
				return false
			}
		}
		return true
	})
	if !areReady {
		return context.Cause(ctx)
	}
	return nil
}

// advance gives the orders that follow from the present states: it stops what is left of instances
// that have failed, lets spares take the places of lost nodes, and starts the next generations. It
// is called after each change, and does nothing that it has done before.
func (h *Head) advance() {
	var orders, old []string
	var isFilling bool
	h.mu.Lock()
	if h.cfg.RunCtx.Err() == nil {
		for _, state := range h.instances {
			own, past := state.TakeOrders(time.Now())
			orders, old = append(orders, own...), append(old, past...)
		}
		isFilling = len(h.fillable(time.Now())) > 0
	}
	h.mu.Unlock()
	h.order(orders...)
	h.cfg.RemoveOldNames(signal.ControlDir, old)
	if isFilling {
		h.cfg.Background(h.fillVacancies)
	}
}

// advanceAfter calls advance after a time, unless the run ends before.
func (h *Head) advanceAfter(pause time.Duration) {
	h.cfg.Background(func(context.Context) {
		if ctxutil.SleepContext(h.cfg.RunCtx, pause) {
			h.advance()
		}
	})
}

// markControl publishes a name in the control directory.
func (h *Head) markControl(name string) error {
	err := h.cfg.Order(name)
	h.cfg.ControlWatch.NotifyChange() // the head's own instances
	return err
}

// orderRetryInterval is the time between two tries to publish an order.
const orderRetryInterval = time.Second

// order publishes orders for the nodes. Those that cannot be written are written later: without
// them the run would wait for ever.
func (h *Head) order(names ...string) {
	for i, name := range names {
		if h.markControl(name) == nil {
			continue
		}
		left := names[i:]
		h.cfg.Background(func(context.Context) {
			if ctxutil.SleepContext(h.cfg.RunCtx, orderRetryInterval) {
				h.cfg.Log.Debug("publishing orders again", zap.Strings("orders", left))
				h.order(left...)
			}
		})
		return
	}
}

// liveList is what the head has last published: the instances that are ready, with endpoints that
// serve, and lost. satisfied counts the roles that had what they require, and those that had it
// with endpoints that serve.
type liveList struct {
	ready, lost []int
	satisfied   int
	plan        int // number of the newest plan, which has the endpoints
}

// differsFrom reports whether other instances are ready or lost, or may have other endpoints.
func (l liveList) differsFrom(o liveList) bool {
	return !slices.Equal(l.ready, o.ready) || !slices.Equal(l.lost, o.lost) || l.plan != o.plan
}

// liveInterval is the time between two lists of ready instances if there are many changes.
const liveInterval = time.Second

// publishLive publishes the lists of ready and lost instances at every change: a few in succession at
// once, and many at most once a second. Before the gate only a loss is a change, and a satisfied role if
// an instance may wait for its endpoints.
func (h *Head) publishLive(ctx context.Context) {
	var pace roles.Pace
	for {
		var isOpen bool
		changed := h.await(ctx, func() bool {
			next := h.currentLive()
			isOpen = h.gateOpen
			return !slices.Equal(next.lost, h.live.lost) || next.differsFrom(h.live) &&
				(isOpen || next.satisfied > h.live.satisfied && h.mayWait())
		})
		if !changed || h.cfg.RunCtx.Err() != nil {
			return
		}
		switch isPublished := h.publishList(ctx); {
		case !isPublished && !ctxutil.SleepContext(ctx, liveInterval):
			return
		case isPublished && isOpen && !ctxutil.SleepContext(ctx, pace.Wait(time.Now(), liveInterval)):
			return
		}
	}
}

// publishList publishes the instances that are ready and lost at present, unless it has. It reports
// whether they are published; if not, the next call tries again.
func (h *Head) publishList(ctx context.Context) bool {
	if !h.publishing.Take(ctx) {
		return false
	}
	defer h.publishing.Leave()
	h.mu.Lock()
	next := h.currentLive()
	earlier := h.live
	isNew := next.differsFrom(earlier)
	h.live = next
	h.mu.Unlock()
	if !isNew {
		return true
	}
	list := &record.LiveInstances{Ready: next.ready, Lost: next.lost}
	err := h.cfg.Publish(signal.ControlDir, signal.SeriesLive.Name(h.nextList), list, false)
	h.nextList++ // a name is not used again, because a try may have succeeded although it failed
	if err != nil {
		h.cfg.LogWriteError(err)
		h.update(func() { h.live = earlier })
		return false
	}
	h.cfg.ControlWatch.NotifyChange()    // the head's own files
	if old := h.nextList - 3; old >= 0 { // a node that is about to read it reads a newer one
		h.cfg.RemoveOldNames(signal.ControlDir, []string{signal.SeriesLive.Name(old)})
	}
	return true
}

// mayWait reports whether an instance that has been started may be waiting for the endpoints of
// others. The caller holds [Head.mu].
func (h *Head) mayWait() bool {
	for _, state := range h.instances {
		if state.Role.MayAwaitOthers() && state.Evidence.Started && state.Status != roles.StatusReady &&
			!state.IsEnded() {
			return true
		}
	}
	return false
}

// currentLive returns the list of the present. Instances without ports have no endpoints, and are not in
// it when they are ready. The caller holds [Head.mu].
func (h *Head) currentLive() (l liveList) {
	l.plan = h.number
	for _, state := range h.instances {
		switch {
		case state.Role.BuiltIn.IsService(): // the gate is all that needs them
		case state.Status == roles.StatusReady && len(state.Role.Program.Ports) > 0 &&
			(h.cfg.HasStandIns || state.IsListed()):
			l.ready = append(l.ready, state.Instance.Number)
		case state.Status == roles.StatusLost:
			l.lost = append(l.lost, state.Instance.Number)
		}
	}
	for i := range h.cfg.Plan.Roles {
		role := &h.cfg.Plan.Roles[i]
		if !h.isSatisfied(role) {
			continue
		}
		l.satisfied++
		listed := 0
		for _, instance := range role.Instances {
			if _, is := slices.BinarySearch(l.ready, instance.Number); is {
				listed++
			}
		}
		if role.ListsListeners() && listed >= role.Required.Start.Of(len(role.Instances)) {
			l.satisfied++
		}
	}
	return l
}
