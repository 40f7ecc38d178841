package instances

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// nodeLoss is what follows from the loss of a node.
type nodeLoss struct {
	place int                     // of the node; -1 if it was a spare
	spare *record.PlacedOffer     // that takes its place; nil if there is none
	moved []*instanceState        // instances that start again, with the spare
	lost  []*instanceState        // instances that are lost
	count map[*roles.RolePlan]int // of the lost ones, by role
}

// LoseNodes records that the daemons of nodes, or of further steps on nodes, are lost with their
// instances, if all roles have enough instances without them, and reports whether that is so. A spare
// node takes the place of each of them, as far as there are any, and starts the instances of roles
// with restarts. silent reports that the nodes have fallen silent, so that their processes may still
// run for a while. When the run is ending, a loss may be the cause of that, unless no instance is
// concerned.
func (h *Head) LoseNodes(members []int, silent bool) bool {
	if h.cfg.RunCtx.Err() != nil {
		return !h.haveInstances(members)
	}
	nodes := make([]int, len(members)) // of the members
	for i, member := range members {
		nodes[i] = record.NodeOfMember(member, h.cfg.Size)
	}
	var losses []nodeLoss
	canGoOn := true
	h.update(func() {
		spares := slices.DeleteFunc(slices.Clone(h.spares), func(o record.PlacedOffer) bool { return slices.Contains(members, o.NodeIndex) })
		lost := make(map[*roles.RolePlan]int)
		for _, member := range members {
			loss := h.planLoss(member, &spares)
			for role, count := range loss.count {
				lost[role] += count
			}
			losses = append(losses, loss)
		}
		for role, count := range lost {
			canGoOn = canGoOn && !role.LacksInstances(h.count(role).lost+count, h.gateOpen)
		}
		if !canGoOn {
			return
		}
		h.spares = spares
		for i, loss := range losses {
			for _, state := range loss.lost {
				state.lose(nodes[i])
			}
			for _, state := range loss.moved {
				state.suspend(nodes[i])
			}
		}
	})
	if !canGoOn {
		return false
	}
	// The caller holds a lock, and the share may not respond.
	h.cfg.Background(func(context.Context) {
		for i, loss := range losses {
			h.stopLost(loss.lost)
			if loss.spare != nil {
				h.cfg.Background(func(context.Context) { h.moveToSpare(nodes[i], loss, silent) })
			}
		}
	})
	return true
}

// haveInstances reports whether one of the members starts processes of an instance.
func (h *Head) haveInstances(members []int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.instances, func(s *instanceState) bool {
		return slices.ContainsFunc(s.nodes, func(node int) bool { return slices.Contains(members, h.memberOf(node, s.role)) })
	})
}

// stopLost stops the processes that lost instances have on other nodes.
func (h *Head) stopLost(lost []*instanceState) {
	for _, state := range lost {
		if state.spans() {
			h.markControl(signal.StopInstanceName(state.instance.Number, state.generation+1))
		}
	}
}

// planLoss returns what follows from the loss of a member, and takes a spare of the same component from
// the list if an instance can start there again. No spare takes the place of a node with instances of
// a further step: it would need a daemon of that step, and the lost node's may still run.
func (h *Head) planLoss(member int, spares *[]record.PlacedOffer) nodeLoss {
	node := record.NodeOfMember(member, h.cfg.Size)
	loss := nodeLoss{place: placeOf(h.plan, node), count: make(map[*roles.RolePlan]int)}
	if loss.place < 0 {
		return loss
	}
	at := slices.IndexFunc(*spares, func(o record.PlacedOffer) bool { return o.Group == h.plan.Offers[loss.place].Group })
	if slices.ContainsFunc(h.instances, func(s *instanceState) bool { return s.role.Program.Step != "" && slices.Contains(s.nodes, node) }) {
		at = -1
	}
	for _, state := range h.instances {
		switch {
		case state.status == statusDone || state.status == statusLost || !slices.Contains(state.nodes, node) || h.memberOf(node, state.role) != member:
		case state.role.DecideLoss(at >= 0) == roles.ActionRestart:
			loss.moved = append(loss.moved, state)
		default:
			loss.lost = append(loss.lost, state)
			loss.count[state.role]++
		}
	}
	if len(loss.moved) > 0 {
		spare := (*spares)[at]
		loss.spare = &spare
		*spares = slices.Delete(*spares, at, at+1)
	}
	return loss
}

// moveToSpare gives the place of a lost node to a spare, when no process of the lost node can run any
// more, and starts the next generation of its instances.
func (h *Head) moveToSpare(node int, loss nodeLoss, silent bool) {
	// The old copies must be gone: those of the lost node, and those of its instances elsewhere.
	if silent && !ctxutil.SleepContext(h.cfg.RunCtx, h.cfg.SilentDelay) {
		return
	}
	for _, state := range loss.moved {
		if !state.spans() {
			continue
		}
		h.markControl(signal.StopInstanceName(state.instance.Number, state.generation+1))
		if !h.await(h.cfg.RunCtx, func() bool { return state.isGone(state.generation) }) {
			return
		}
	}
	// Publish the plan, in which the spare has the place. An instance of which another node is still to
	// be replaced starts with the last of them.
	var starts []*instanceState
	h.mu.Lock()
	next := *h.plan
	next.Header = record.Header{}
	next.Offers, next.Generations = slices.Clone(h.plan.Offers), maps.Clone(h.plan.Generations)
	if next.Generations == nil {
		next.Generations = make(map[int]int)
	}
	next.Offers[loss.place] = *loss.spare
	for _, state := range loss.moved {
		next.Generations[state.instance.Number] = state.generation + 1
		if state.move(node, loss.spare.NodeIndex) {
			starts = append(starts, state)
		}
	}
	h.number++
	number := h.number
	h.plan = &next
	h.mu.Unlock()
	published := next // Publish writes its header
	if err := h.cfg.Publish(signal.ControlDir, signal.PlanName(number), &published, false); err != nil {
		f := health.AsFailure(err)
		f.Message = fmt.Sprintf("cannot give the place of node %d to the spare node %d: %s", node, loss.spare.NodeIndex, f.Message)
		h.cfg.Failed(f.Failure, time.Now())
		return
	}
	h.cfg.Log.Warn("a spare node takes the place of a lost one", zap.Int("lost", node), zap.Int("spare", loss.spare.NodeIndex), zap.Int("place", loss.place))
	for _, state := range starts {
		if state.spans() {
			h.markControl(signal.StartInstanceName(state.instance.Number, state.generation))
		}
	}
}
