package instances

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// AwaitPrimaries waits until all primary roles have ended with 0, and returns a sentence about that.
// Without a primary role it waits for the end of ctx. It returns the cause if ctx ends first.
func (h *Head) AwaitPrimaries(ctx context.Context) (string, error) {
	if !h.await(ctx, h.primariesHaveEnded) {
		return "", context.Cause(ctx)
	}
	var names []string
	for _, role := range h.primaries() {
		names = append(names, role.Name)
	}
	return "all primary roles have ended with 0: " + strings.Join(names, ", "), nil
}

// FailedRanks returns the exits of the ranks that have failed, role by role and node by node, after
// all have ended. There are none unless the others go on.
func (h *Head) FailedRanks(ctx context.Context) (failed []record.RankExit, err error) {
	for _, state := range h.instances {
		for _, node := range state.Evidence.Nodes {
			if !state.Role.Placement.RanksGoOn {
				continue
			}
			mark := record.InstanceMark{Node: node, Instance: state.Instance.Number,
				Generation: state.Generation, State: record.InstanceDone}
			rec := new(record.RanksEnded)
			name := signal.InstanceName(mark, h.cfg.Size)
			if err := h.cfg.Dir.ReadRecord(ctx, signal.NodesDir, name, rec); err != nil {
				return nil, err
			}
			failed = append(failed, ranks.FailedExits(rec.Exits)...)
		}
	}
	return failed, nil
}

// primariesHaveEnded reports whether there are primary roles, and all have ended as they should. The
// caller holds [Head.mu].
func (h *Head) primariesHaveEnded() bool {
	primaries := h.primaries()
	return len(primaries) > 0 && !slices.ContainsFunc(primaries, func(role *roles.RolePlan) bool {
		return !role.HasEnded(h.count(role))
	})
}

func (h *Head) primaries() (primaries []*roles.RolePlan) {
	for i := range h.cfg.Plan.Roles {
		if role := &h.cfg.Plan.Roles[i]; role.Primary {
			primaries = append(primaries, role)
		}
	}
	return primaries
}

// endSlack is how much longer than its grace period a level may take to stop: the share and the
// nodes need time, too.
const endSlack = 10 * time.Second

// StopInOrder stops the roles level by level: primary roles first, then each role before those that
// it was started after. The nodes follow the levels by themselves; they need an order only after
// instances of other nodes. Each level has the longest grace period of its roles. isPublished states
// that the nodes know the orderly end, which comes after that of the primary roles. It gives up when
// ctx ends.
func (h *Head) StopInOrder(ctx context.Context, isPublished bool) {
	end := roles.EndOrder{Defs: h.cfg.Defs, Plan: h.cfg.Plan, AfterPrimaries: isPublished}
	levels := roles.EndLevels(h.cfg.Defs)
	if len(levels) == 0 {
		return
	}
	if !isPublished {
		_ = h.markControl(signal.EndName(1)) // if it cannot be written, the peer links carry it
	}
	for i, names := range levels {
		h.orderLevel(i, end.Awaiting(i))
		var grace time.Duration
		var states []*instanceState // the level's
		for _, name := range names {
			role := h.cfg.Plan.FindRole(name)
			grace = max(grace, role.Stop.Grace)
			states = append(states, h.instancesOf(role)...)
		}
		own, cancel := context.WithTimeoutCause(ctx, grace+endSlack, health.ErrDeadline)
		if !h.await(own, func() bool { return !slices.ContainsFunc(states, (*instanceState).MayRun) }) {
			h.cfg.Log.Warn("not all instances have stopped in time", zap.Strings("roles", names))
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
	}
}

// orderLevel lets the daemons at some places stop their instances of a level. Those of the head's
// node need no record.
func (h *Head) orderLevel(level int, of []roles.EndMember) {
	switch name := signal.EndName(level + 1); {
	case len(of) == 0:
	case slices.ContainsFunc(of, func(m roles.EndMember) bool { return m.Place > 0 || m.Step != "" }):
		_ = h.markControl(name)
	default:
		h.cfg.LogWriteError(h.cfg.Dir.AcceptHeadReport(name, nil))
	}
}

// addDone records that nothing is left of the instances of daemons that are done. They publish no end
// of each.
func (h *Head) addDone(members []int) {
	h.update(func() {
		for _, state := range h.instances {
			for _, node := range h.nodesIn(state, members) {
				newest, _ := state.Evidence.Marks.Newest(node)
				if state.Evidence.Started && !newest.State.HasEnded() {
					state.AddMark(record.InstanceMark{Node: node, Instance: state.Instance.Number,
						Generation: state.Generation, State: record.InstanceStopped})
				}
			}
		}
	})
}

// StoppedCode returns the exit code of the primary roles after they were stopped: that of the first
// of their instances that has not ended with 0. An instance has the code of its process of rank 0,
// or that of [health.StoppedOutcome] if that process did not run then.
func (h *Head) StoppedCode(ctx context.Context) int {
	ctx, cancel := context.WithTimeoutCause(ctx, recordReadTimeout, health.ErrDeadline)
	defer cancel()
	var marks []record.InstanceMark
	h.mu.Lock()
	others := 0 // the code of instances without such a record
	for _, state := range h.instances {
		newest, _ := state.Evidence.Marks.Newest(state.Evidence.Nodes[0])
		switch {
		case !state.Role.Primary || state.IsEnded():
		case newest.State == record.InstanceStopped && newest.Generation == state.Generation:
			marks = append(marks, newest)
		default:
			others = health.StoppedOutcome.Code
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
	return others
}

const (
	// stallTimeout is how long nothing may run and nothing be due in a run that has not ended.
	stallTimeout  = time.Minute
	stallInterval = 10 * time.Second // the interval between two looks
)

// watchStall ends the run, with its state in the log, if nothing runs and nothing is due although
// a primary role has not ended. That is an internal error.
func (h *Head) watchStall(ctx context.Context) {
	if len(h.primaries()) == 0 {
		return
	}
	var since time.Time // when the run was first seen stalled; zero if it was not
	for ctxutil.SleepContext(ctx, stallInterval) && h.cfg.RunCtx.Err() == nil {
		now := time.Now()
		h.mu.Lock()
		what := h.describeStall(now)
		h.mu.Unlock()
		switch {
		case what == "" || h.cfg.IsBusy != nil && h.cfg.IsBusy():
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= stallTimeout:
			h.cfg.Log.Error("nothing runs, and nothing is due", zap.String("instances", what))
			f := health.NewFailure(health.Internal,
				"nothing has run for %s and nothing is due, but the primary roles have not ended: "+
					"%s; please report this with the log of this daemon", stallTimeout, what)
			h.cfg.Failed(f.Failure, now)
			return
		}
	}
}

// describeStall returns the states of the instances if nothing runs and nothing is due, and otherwise
// an empty string. The caller holds [Head.mu].
func (h *Head) describeStall(now time.Time) string {
	if h.primariesHaveEnded() {
		return ""
	}
	var parts []string
	for _, state := range h.instances {
		if len(state.Running) > 0 || now.Before(state.DueAt(h.cfg.SilentDelay)) {
			return ""
		}
		parts = append(parts, fmt.Sprintf("%s.%d %s in generation %d", state.Role.Name,
			state.Instance.Index, state.Status, state.Generation))
	}
	return strings.Join(parts, ", ")
}
