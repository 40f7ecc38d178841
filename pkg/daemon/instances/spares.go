package instances

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// addSpares makes the nodes spares that have made their offers after the plan: they were too late for
// the choice of nodes, and may be all that the run will ever have.
func (h *Head) addSpares(l signal.Listing) {
	if h.cfg.Dropped == nil {
		return
	}
	late := slices.DeleteFunc(l.NodesIn(record.StateOffer), func(node int) bool { return h.offers[node] })
	if len(late) == 0 {
		return
	}
	for _, node := range late {
		h.offers[node] = true
	}
	h.cfg.Background(func(context.Context) {
		offers, err := planning.ReadOffers(h.cfg.RunCtx, h.cfg.Dir, late, h.cfg.Size)
		for err != nil && ctxutil.SleepContext(h.cfg.RunCtx, orderRetryInterval) {
			offers, err = planning.ReadOffers(h.cfg.RunCtx, h.cfg.Dir, late, h.cfg.Size)
		}
		if err != nil {
			return // the run ends
		}
		unfit := make(map[int]bool)
		for _, dropped := range h.cfg.Dropped() {
			unfit[dropped.NodeIndex] = true
		}
		var added []roles.NodeFacts
		h.update(func() {
			for _, offer := range offers {
				if !h.lost[offer.NodeIndex] && !unfit[offer.NodeIndex] {
					added = append(added, offer)
				}
			}
			h.spares = append(h.spares, added...)
		})
		if len(added) > 0 {
			h.cfg.Log.Info("these nodes were late, and are spares now", zap.Ints("nodes", planning.MembersOf(added)))
		}
	})
}

// vacancy is the place of a lost node that a spare is about to take.
type vacancy struct {
	place  int
	node   int // the lost one
	spare  roles.NodeFacts
	fillAt time.Time // before that, processes of the lost node may still run

	isFilling   bool // a plan in which the spare has the place is being published
	isSpareLost bool // the spare is lost, and does not take the place
}

// nodeLoss is what follows from the loss of several daemons at once.
type nodeLoss struct {
	members   []int                    // the lost daemons'
	spares    []roles.NodeFacts        // those that are left
	vacancies []*vacancy               // new ones
	parts     map[*instanceState][]int // lost nodes of each instance
	lost      []*instanceState         // those that do not start again
}

// LoseNodes records that the daemons of nodes, or of further steps on nodes, are lost with their
// instances, if all roles have enough instances without them, and reports whether that is so. The
// loss of several daemons is one event: an instance that loses several of its nodes is lost once, or
// starts again with a spare for each of them. silent reports that the nodes have fallen silent, so
// that their processes may still run for a while, as they may if a peer link was reset. When the
// run is ending, a loss may be the cause of
// that, unless no instance is concerned.
func (h *Head) LoseNodes(members []int, silent bool) bool {
	if h.cfg.RunCtx.Err() != nil {
		return !h.loseAtEnd(members)
	}
	silent = silent || slices.ContainsFunc(members,
		func(m int) bool { return h.cfg.Links.Peer(m, time.Now()).IsBroken() })
	canGoOn, delay := true, time.Duration(0)
	h.update(func() {
		for _, member := range members {
			h.lost[member] = true
		}
		loss := h.planLoss(members)
		lost := make(map[*roles.RolePlan]int)
		for _, state := range loss.lost {
			lost[state.Role]++
		}
		for role, count := range lost {
			canGoOn = canGoOn && !role.LacksInstances(h.count(role).Lost+count, h.gateOpen)
		}
		if silent { // a node that is cut off notices that in this time, and then stops its processes
			delay = h.cfg.SilentDelay
			for state, nodes := range loss.parts {
				if len(nodes) > 0 {
					delay = max(delay, h.cfg.SilentDelay+state.Role.Stop.Grace)
				}
			}
		}
		if canGoOn {
			h.applyLoss(loss, delay)
		}
	})
	if canGoOn { // the caller holds a lock, and the share may not respond
		h.advanceAfter(0)
		if silent {
			h.advanceAfter(delay)
		}
		var names []string
		for _, member := range members {
			names = append(names, signal.LostName(member, h.cfg.Size))
		}
		// Silent nodes may run again; observers learn of all.
		h.cfg.Background(func(context.Context) { h.order(names...) })
	}
	return canGoOn
}

// loseAtEnd records the loss of members while the run is ending: nothing is awaited from them. It
// reports whether one of them has started processes of an instance.
func (h *Head) loseAtEnd(members []int) (haveInstances bool) {
	h.update(func() {
		for _, state := range h.instances {
			for _, node := range h.nodesIn(state, members) {
				haveInstances = true
				state.LoseNode(node)
			}
		}
	})
	return haveInstances
}

// nodesIn returns the nodes of an instance whose processes are started by one of the members. The
// caller holds [Head.mu].
func (h *Head) nodesIn(s *instanceState, members []int) (nodes []int) {
	for _, node := range s.Evidence.Nodes {
		if slices.Contains(members, h.memberOf(node, s.Role)) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// planLoss returns what follows from the loss of members. An instance with restarts starts again
// if there is a spare of the same component for each of its lost nodes, first those with a peer
// link. The caller holds [Head.mu].
func (h *Head) planLoss(members []int) nodeLoss {
	isLost := func(o roles.NodeFacts) bool { return slices.Contains(members, o.NodeIndex) }
	loss := nodeLoss{
		members: members, spares: slices.DeleteFunc(slices.Clone(h.spares), isLost),
		parts: make(map[*instanceState][]int),
	}
	loss.spares = planning.PreferLinked(loss.spares, h.cfg.Links.Unlinked(planning.MembersOf(loss.spares), time.Now()))
	// A spare that is lost before it has taken a place leaves the place to another one.
	waiting := make(map[int]bool) // places for which there is no spare any more
	for _, v := range h.vacancies {
		waiting[v.place] = isLost(v.spare)
	}
	taken := make(map[int]*vacancy)
	for _, state := range h.instances {
		nodes := h.nodesIn(state, members)
		for _, node := range state.Evidence.LostNodes {
			if waiting[h.plan.PlaceOf(node)] {
				nodes = append(nodes, node)
			}
		}
		loss.parts[state] = nodes
		if len(nodes) == 0 || state.IsEnded() {
			continue
		}
		if !h.assignSpares(state, nodes, taken, &loss) {
			loss.lost = append(loss.lost, state)
		}
	}
	return loss
}

// assignSpares assigns a spare to the place of each lost node of an instance, and reports whether
// there are enough. No spare takes the place of a node with instances of a further step: it would
// need a daemon of that step. taken has the assigned ones, by place. The caller holds [Head.mu].
func (h *Head) assignSpares(state *instanceState, nodes []int, taken map[int]*vacancy, loss *nodeLoss) bool {
	left := slices.Clone(loss.spares)
	var own []*vacancy
	for _, node := range nodes {
		place := h.plan.PlaceOf(node)
		if taken[place] != nil {
			continue
		}
		at := slices.IndexFunc(left, func(o roles.NodeFacts) bool { return o.Group == h.plan.Offers[place].Group })
		if h.hasStepInstances(node) || state.Role.DecideLoss(at >= 0) != roles.ActionRestart {
			return false
		}
		own = append(own, &vacancy{place: place, node: node, spare: left[at]})
		left = slices.Delete(left, at, at+1)
	}
	if state.Role.DecideLoss(true) != roles.ActionRestart {
		return false
	}
	loss.spares = left
	loss.vacancies = append(loss.vacancies, own...)
	for _, v := range own {
		taken[v.place] = v
	}
	return true
}

// hasStepInstances reports whether a node has instances of a further step. The caller holds
// [Head.mu].
func (h *Head) hasStepInstances(node int) bool {
	return slices.ContainsFunc(h.instances,
		func(s *instanceState) bool { return s.Role.Program.Step != "" && s.IsOn(node) })
}

// applyLoss records a loss without which all roles have enough instances. Processes of the lost nodes
// may run for the delay. The caller holds [Head.mu].
func (h *Head) applyLoss(loss nodeLoss, delay time.Duration) {
	fillAt := time.Now().Add(delay)
	h.spares = loss.spares
	waited := make(map[int]time.Time) // for places whose spare is lost, too
	h.vacancies = slices.DeleteFunc(h.vacancies, func(v *vacancy) bool {
		v.isSpareLost = slices.Contains(loss.members, v.spare.NodeIndex)
		if v.isSpareLost {
			waited[v.place] = v.fillAt
		}
		return v.isSpareLost
	})
	for _, v := range loss.vacancies {
		v.fillAt = latest(fillAt, waited[v.place])
		h.vacancies = append(h.vacancies, v)
	}
	for state, nodes := range loss.parts {
		for _, node := range nodes {
			state.LoseNode(node)
		}
	}
	for _, state := range loss.lost {
		state.GiveUp()
	}
	// A spare that no instance waits for any more is free again.
	h.vacancies = slices.DeleteFunc(h.vacancies, func(v *vacancy) bool {
		isNeeded := slices.ContainsFunc(h.instances, func(s *instanceState) bool {
			return s.IsOn(v.node) && s.Status == roles.StatusRestarting
		})
		if isNeeded || v.isFilling {
			return false
		}
		h.spares = append(h.spares, v.spare)
		return true
	})
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// fillable returns the vacancies that spares may take now: no process of the lost node can run any
// more, and those of its instances on other nodes have ended. The caller holds [Head.mu].
func (h *Head) fillable(now time.Time) (fillable []*vacancy) {
	for _, v := range h.vacancies {
		mustWait := slices.ContainsFunc(h.instances, func(s *instanceState) bool {
			return s.IsOn(v.node) && s.Evidence.Started && s.Status == roles.StatusRestarting && !s.IsGone
		})
		if !mustWait && !now.Before(v.fillAt) {
			fillable = append(fillable, v)
		}
	}
	return fillable
}

// fillVacancies publishes a plan in which spares have the places of lost nodes, and then starts
// the next generations of the complete instances: the nodes learn from the plan where the others
// are.
func (h *Head) fillVacancies(context.Context) {
	h.mu.Lock()
	filled := h.fillable(time.Now())
	if len(filled) == 0 || h.cfg.RunCtx.Err() != nil || h.isPlanning {
		h.mu.Unlock()
		return
	}
	h.isPlanning = true
	next := h.nextPlan(filled)
	number := h.number + 1
	for _, v := range filled {
		v.isFilling = true
	}
	h.mu.Unlock()
	published := *next // Publish writes its header
	if err := h.cfg.Publish(signal.ControlDir, signal.SeriesPlan.Name(number), &published, false); err != nil {
		h.cfg.LogWriteError(err)
		// Its name is not used again, because nodes may have read it although it failed.
		h.update(func() { h.number, h.isPlanning = number, false })
		h.advanceAfter(orderRetryInterval)
		return
	}
	h.update(func() {
		h.number, h.plan, h.isPlanning = number, next, false
		for _, v := range filled {
			h.fill(v)
		}
	})
	for _, v := range filled {
		h.cfg.Log.Warn("a spare node takes the place of a lost one",
			zap.Int("lost", v.node), zap.Int("spare", v.spare.NodeIndex), zap.Int("place", v.place))
	}
	h.advance()
}

// nextPlan returns the plan in which spares have taken the places of these vacancies. A spare
// starts the next generation of each instance there, but none that is over, except what has
// prepared the lost node. The caller holds [Head.mu].
func (h *Head) nextPlan(filled []*vacancy) *roles.PlanRecord {
	next := *h.plan
	next.Header = record.Header{}
	next.Offers, next.Generations = slices.Clone(h.plan.Offers), maps.Clone(h.plan.Generations)
	if next.Generations == nil {
		next.Generations = make(map[int]int)
	}
	for _, v := range filled {
		next.Offers[v.place] = v.spare
		for _, state := range h.instances {
			switch {
			case !state.IsOn(v.node):
			case !state.IsEnded():
				next.Generations[state.Instance.Number] = state.Generation + 1
			case !state.Role.Oneshot || state.Status == roles.StatusLost:
				next.Generations[state.Instance.Number] = noGeneration
			}
		}
	}
	return &next
}

// noGeneration is the first generation of an instance, in a plan, that a spare must not start.
const noGeneration = -1

// fill records that the spare of a vacancy has taken its place. If the spare was lost meanwhile,
// the next one takes its place. The caller holds [Head.mu].
func (h *Head) fill(v *vacancy) {
	h.vacancies = slices.DeleteFunc(h.vacancies, func(known *vacancy) bool { return known == v })
	for _, state := range h.instances {
		if state.IsOn(v.node) && state.Status == roles.StatusRestarting {
			state.ReplaceNode(v.node, v.spare.NodeIndex, h.plan.Generations[state.Instance.Number])
			if v.isSpareLost {
				state.LoseNode(v.spare.NodeIndex)
			}
		}
	}
	for _, next := range h.vacancies {
		if next.place == v.place {
			next.node = v.spare.NodeIndex
		}
	}
}
