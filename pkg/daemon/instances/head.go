package instances

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// HeadConfig configures the part of the head.
type HeadConfig struct {
	*lifecycle.Publisher
	Plan   *roles.Plan
	Record *record.RolePlan     // the first plan, which has been published
	Spares []record.PlacedOffer // offers of the spare nodes
	Size   int                  // number of nodes of the launch
	Steps  []string             // further job steps, whose daemons start roles
	// SilentDelay is how long after its loss the daemon of a silent node may still serve. A spare
	// takes its place after that.
	SilentDelay time.Duration
	NodeWatch   *signal.Watch
	Hang        HangConfig
	// Worlds gets the worlds of the instances that span several nodes.
	Worlds *rendezvous.Worlds
	// Failed ends the run by a failure that was seen at a time.
	Failed func(cause record.Failure, at time.Time)
}

// Head decides for the run when a role starts, whether it has enough instances, and when the run is
// over.
type Head struct {
	cfg       HeadConfig
	endLevels [][]string

	mu        sync.Mutex
	spares    []record.PlacedOffer         // that are left; guarded by mu
	plan      *record.RolePlan             // the newest; guarded by mu
	number    int                          // of the newest plan; guarded by mu
	instances []*instanceState             // by number; guarded by mu
	seen      map[signal.InstanceMark]bool // marks that have been handled; guarded by mu
	started   map[string]bool              // roles that have been started; guarded by mu
	gateOpen  bool                         // guarded by mu
	tolerated []toleratedExit              // guarded by mu
	failures  map[string]*roleFailures     // of each role; guarded by mu
	live      liveList                     // guarded by mu
	lists     listNumber
	isEnding  bool          // no role or instance is started any more; guarded by mu
	changed   chan struct{} // closed and replaced at each change; guarded by mu
}

// roleFailures detects that all instances of a role fail together, and has the first of these exits.
type roleFailures struct {
	roles.CommonCause
	first record.Failure
}

// toleratedExit is an exit that has not ended the run.
type toleratedExit struct {
	at   time.Time
	text string
}

// NewHead returns the part of the head. Nothing runs yet.
func NewHead(cfg HeadConfig) *Head {
	h := &Head{
		cfg: cfg, seen: make(map[signal.InstanceMark]bool), started: make(map[string]bool), failures: make(map[string]*roleFailures), changed: make(chan struct{}),
		spares: slices.Clone(cfg.Spares), plan: cfg.Record,
	}
	var members []int
	for _, offer := range cfg.Record.Offers {
		members = append(members, offer.NodeIndex)
	}
	var defs []roles.Definition
	for i := range cfg.Plan.Roles {
		role := &cfg.Plan.Roles[i]
		defs = append(defs, *role.Definition)
		h.failures[role.Name] = new(roleFailures)
		h.started[role.Name] = len(role.After) == 0
		for j := range role.Instances {
			h.instances = append(h.instances, newInstanceState(role, &role.Instances[j], members))
		}
	}
	h.endLevels = roles.EndLevels(defs)
	cfg.Worlds.SetFinder((&worldFinder{Head: h, open: make(map[int]openWorld)}).find)
	return h
}

// memberOf returns the member index of the daemon that starts the processes of a role on a node.
func (h *Head) memberOf(node int, role *roles.RolePlan) int {
	return record.MemberIndex(node, 1+slices.Index(h.cfg.Steps, role.Program.Step), h.cfg.Size)
}

// Follow handles what the nodes publish about their instances, until ctx ends.
func (h *Head) Follow(ctx context.Context) {
	h.cfg.Background(h.publishLive)
	h.cfg.Background(h.followHangs)
	_, _ = h.cfg.NodeWatch.FollowListings(ctx, func(l signal.Listing) bool {
		h.handleMarks(ctx, l.Instances(), l.SeenAt)
		h.startRoles(ctx)
		return false
	})
}

// handleMarks handles the marks that have not been seen before, in their order. Those between two
// exits are one change: thousands of instances may become ready at once.
func (h *Head) handleMarks(ctx context.Context, marks []signal.InstanceMark, at time.Time) {
	var states []signal.InstanceMark
	for _, mark := range h.addSeen(marks) {
		if mark.State != record.InstanceExited {
			states = append(states, mark)
			continue
		}
		h.recordStates(states, at)
		states = nil
		h.handleExit(ctx, mark, at)
	}
	h.recordStates(states, at)
}

// addSeen returns the marks that have not been seen before, and adds them to those that have.
func (h *Head) addSeen(marks []signal.InstanceMark) (news []signal.InstanceMark) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, mark := range marks {
		if !h.seen[mark] && mark.Instance < len(h.instances) {
			h.seen[mark] = true
			news = append(news, mark)
		}
	}
	return news
}

// recordStates records the states of instances.
func (h *Head) recordStates(marks []signal.InstanceMark, at time.Time) {
	if len(marks) == 0 {
		return
	}
	h.update(func() {
		changed := make(map[*roles.RolePlan]bool)
		for _, mark := range marks {
			state := h.instances[mark.Instance]
			state.record(mark)
			changed[state.role] = true
		}
		for role := range changed {
			if down := h.count(role).down; down == 0 {
				h.failures[role.Name].Record(role, down, at) // all are up again
			}
		}
	})
}

// update changes the state of instances, and wakes everything that waits for a change.
func (h *Head) update(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
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

// handleExit handles the exit of an instance on a node: it starts the next generation of an instance
// that spans several nodes, and ends the run if a role has too few instances left.
func (h *Head) handleExit(ctx context.Context, mark signal.InstanceMark, at time.Time) {
	rec, err := h.readExit(ctx, mark)
	if err != nil {
		h.update(func() { delete(h.seen, mark) }) // it is read again when the share responds
		return
	}
	state := h.instances[mark.Instance]
	var lost, restarts bool
	h.update(func() {
		lost, restarts = state.recordExit(mark, rec, at)
		if lost && state.spans() {
			rec.Message += describeUsed(state.role, &state.budget)
		}
		if lost && !h.lacks(state.role) || restarts {
			h.tolerated = append(h.tolerated, toleratedExit{at, rec.Message})
		}
	})
	h.logExit(state, rec, mark.Node, lost, restarts)
	if restarts && state.spans() {
		h.cfg.Background(func(context.Context) { h.restartTogether(state, mark.Generation) })
	}
	if lost && state.spans() {
		h.markControl(signal.StopInstanceName(mark.Instance, mark.Generation+1)) // the processes on the other nodes
	}
	h.evaluate(state.role, rec, lost, at)
}

// recordReadTimeout limits the time for reading a record that another one may replace.
const recordReadTimeout = 10 * time.Second

// readExit reads the record of an exit. A record that cannot be read although the share responds is
// replaced by one that says so.
func (h *Head) readExit(ctx context.Context, mark signal.InstanceMark) (*record.InstanceExit, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, recordReadTimeout, health.ErrDeadline)
	defer cancel()
	rec := new(record.InstanceExit)
	err := h.cfg.Dir.ReadRecord(ctx, signal.NodesDir, signal.InstanceName(mark, h.cfg.Size), rec)
	switch {
	case err == nil:
		return rec, nil
	case ctx.Err() != nil || signal.IsStalled(err):
		return nil, err
	}
	state := h.instances[mark.Instance]
	rec.Failure = health.NewFailure(health.ServiceDied, "%s.%d has exited, and its record cannot be read: %v", state.role.Name, state.instance.Index, err).Failure
	rec.NodeIndex, rec.Role, rec.Index = mark.Node, state.role.Name, state.instance.Index
	return rec, nil
}

// evaluate ends the run if a role has fewer instances than it needs, or if all of its instances fail
// together again and again. rec is the exit that may be the cause.
func (h *Head) evaluate(role *roles.RolePlan, rec *record.InstanceExit, lost bool, at time.Time) {
	h.mu.Lock()
	count := h.count(role)
	failures := h.failures[role.Name]
	if count.down <= 1 {
		failures.first = rec.Failure
	}
	isCommon := failures.Record(role, count.down, at)
	first := failures.first
	lacks := lost && h.lacks(role)
	earlier := h.describeTolerated(at, rec.Message)
	h.mu.Unlock()
	cause := rec.Failure
	all := len(role.Instances)
	switch {
	case h.cfg.RunCtx.Err() != nil:
		return
	case isCommon:
		cause = first
		cause.Message = fmt.Sprintf("all %d instances of role %s have exited again within %s; the first: %s", all, role.Name, role.Restarts.Window, cause.Message)
	case !lacks && lost:
		h.cfg.Log.Warn(fmt.Sprintf("role %s goes on with %d of %d instances: %s", role.Name, all-count.lost, all, rec.Message))
		return
	case !lacks:
		if rec.WillRestart || h.instances[h.numberOf(role, rec)].spans() {
			h.cfg.Log.Warn(fmt.Sprintf("%s.%d is started again: %s", role.Name, rec.Index, rec.Message))
		}
		return
	case all > 1:
		need := role.Required.Run.Of(all)
		if !h.isGateOpen() {
			need = role.Required.Start.Of(all)
		}
		cause.Message += fmt.Sprintf("; role %s has %d of %d instances left and needs %d", role.Name, all-count.lost, all, need)
	}
	cause.Message += earlier
	h.cfg.Failed(cause, at)
}

func (h *Head) isGateOpen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gateOpen
}

// numberOf returns the number of the instance of an exit.
func (h *Head) numberOf(role *roles.RolePlan, rec *record.InstanceExit) int {
	return role.Instances[rec.Index].Number
}

// lacks reports whether a role has fewer instances left than it needs.
func (h *Head) lacks(role *roles.RolePlan) bool {
	return role.LacksInstances(h.count(role).lost, h.gateOpen)
}

// toleratedWindow is how long a tolerated exit is mentioned with a failure that follows.
const toleratedWindow = time.Minute

// describeTolerated describes the exits that were tolerated in the minute before at: a failure that
// follows may be their consequence. besides is the message of the failure itself.
func (h *Head) describeTolerated(at time.Time, besides string) string {
	var texts []string
	for _, exit := range slices.Backward(h.tolerated) {
		if ago := at.Sub(exit.at); ago <= toleratedWindow && exit.text != besides && len(texts) < 3 {
			texts = append(texts, fmt.Sprintf("%s, %s before", exit.text, ago.Round(100*time.Millisecond)))
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return " (tolerated in the minute before: " + strings.Join(texts, "; ") + ")"
}

// restartTogether starts the next generation of an instance that spans several nodes, when all of
// its processes of the generation before have been stopped.
func (h *Head) restartTogether(state *instanceState, generation int) {
	h.markControl(signal.StopInstanceName(state.instance.Number, generation+1))
	if !h.await(h.cfg.RunCtx, func() bool { return state.isGone(generation) }) {
		return
	}
	if !ctxutil.SleepContext(h.cfg.RunCtx, state.pause) {
		return
	}
	begins := false
	h.update(func() {
		// A node of the instance may be lost meanwhile, and a spare may start the generation, or the run
		// may be ending.
		begins = state.status == statusRestarting && state.moving == 0 && state.generation == generation && !h.isEnding
		if begins {
			state.begin(generation + 1)
		}
	})
	if begins {
		h.markControl(signal.StartInstanceName(state.instance.Number, generation+1))
	}
}

// markControl publishes a name in the control directory.
func (h *Head) markControl(name string) {
	h.cfg.Order(name)
	h.cfg.ControlWatch.NotifyChange() // the head's own instances
}

// startRoles starts the roles whose predecessors have what they require. Before that it publishes
// which instances are ready.
func (h *Head) startRoles(ctx context.Context) {
	var starts []string
	for i := range h.cfg.Plan.Roles {
		role := &h.cfg.Plan.Roles[i]
		h.mu.Lock()
		start := !h.started[role.Name] && !slices.ContainsFunc(role.After, func(name string) bool { return !h.isSatisfied(h.cfg.Plan.FindRole(name)) })
		h.started[role.Name] = h.started[role.Name] || start
		h.mu.Unlock()
		if start && h.cfg.RunCtx.Err() == nil {
			starts = append(starts, signal.StartName(role.Name))
		}
	}
	if len(starts) > 0 {
		h.publishList(ctx)
	}
	for _, name := range starts {
		h.markControl(name)
	}
}

// roleCount has the numbers of a role's instances in some states.
type roleCount struct{ ready, done, lost, down int }

func (h *Head) count(role *roles.RolePlan) (c roleCount) {
	for _, instance := range role.Instances {
		switch state := h.instances[instance.Number]; {
		case state.status == statusReady:
			c.ready++
		case state.status == statusDone:
			c.done++
		case state.status == statusLost:
			c.lost++
		case state.status == statusRestarting || state.status == statusStarting && state.generation > 0:
			c.down++
		}
	}
	return c
}

// isSatisfied reports whether a role has what those after it require.
func (h *Head) isSatisfied(role *roles.RolePlan) bool {
	c := h.count(role)
	there := c.ready + c.done
	if role.Oneshot {
		there = c.done
	}
	return there >= role.Required.Start.Of(len(role.Instances))
}

// AwaitGate waits until all roles that are not primary have what they require. It returns the cause
// if ctx ends first.
func (h *Head) AwaitGate(ctx context.Context) error {
	ready := h.await(ctx, func() bool {
		for i := range h.cfg.Plan.Roles {
			if role := &h.cfg.Plan.Roles[i]; !role.Primary && !h.isSatisfied(role) {
				return false
			}
		}
		return true
	})
	if !ready {
		return context.Cause(ctx)
	}
	h.update(func() { h.gateOpen = true })
	return nil
}

// AwaitPrimaries waits until all primary roles have ended with 0, and returns a sentence about that.
// Without a primary role it waits for the end of ctx. It returns the cause if ctx ends first.
func (h *Head) AwaitPrimaries(ctx context.Context) (string, error) {
	var primaries []string
	ended := h.await(ctx, func() bool {
		primaries = nil
		for i := range h.cfg.Plan.Roles {
			role := &h.cfg.Plan.Roles[i]
			if !role.Primary {
				continue
			}
			primaries = append(primaries, role.Name)
			c := h.count(role)
			if c.done+c.lost < len(role.Instances) || c.done < role.Required.Run.Of(len(role.Instances)) {
				return false
			}
		}
		return len(primaries) > 0
	})
	if !ended {
		return "", context.Cause(ctx)
	}
	return "all primary roles have ended with 0: " + strings.Join(primaries, ", "), nil
}

// endSlack is how much longer than its grace period a level may take to stop: the share and the
// nodes need time, too.
const endSlack = 10 * time.Second

// StopInOrder stops the roles level by level: primary roles first, then each role before those that
// it was started after. Each level has the longest grace period of its roles. It gives up when ctx
// ends.
func (h *Head) StopInOrder(ctx context.Context) {
	h.update(func() { h.isEnding = true })
	for i, level := range h.endLevels {
		var grace time.Duration
		for _, name := range level {
			grace = max(grace, h.cfg.Plan.FindRole(name).Stop.Grace)
		}
		stopped := func() bool {
			return !slices.ContainsFunc(h.instances, func(s *instanceState) bool {
				return slices.Contains(level, s.role.Name) && h.started[s.role.Name] && s.mayRun()
			})
		}
		h.mu.Lock()
		done := stopped()
		h.mu.Unlock()
		if done {
			continue
		}
		h.markControl(signal.EndName(i + 1))
		own, cancel := context.WithTimeoutCause(ctx, grace+endSlack, health.ErrDeadline)
		if !h.await(own, stopped) {
			h.cfg.Log.Warn("not all instances have stopped in time", zap.Strings("roles", level))
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
	}
}

// StoppedCode returns the exit code of the primary roles after they were stopped: that of the first
// of their instances that has not ended with 0. An instance has the code of its process of rank 0.
func (h *Head) StoppedCode(ctx context.Context) int {
	ctx, cancel := context.WithTimeoutCause(ctx, recordReadTimeout, health.ErrDeadline)
	defer cancel()
	var marks []signal.InstanceMark
	h.mu.Lock()
	for _, state := range h.instances {
		if first := state.nodes[0]; state.role.Primary && state.parts[first] == record.InstanceStopped {
			marks = append(marks, signal.InstanceMark{Node: first, Instance: state.instance.Number, Generation: state.generation, State: record.InstanceStopped})
		}
	}
	h.mu.Unlock()
	for _, mark := range marks {
		rec := new(record.InstanceStop)
		if err := h.cfg.Dir.ReadRecord(ctx, signal.NodesDir, signal.InstanceName(mark, h.cfg.Size), rec); err != nil {
			h.cfg.Log.Warn("cannot read the code of a primary role that was stopped", zap.Error(err))
		}
		if rec.Code != 0 {
			return rec.Code
		}
	}
	return 0
}
