package instances

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

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

// handleExit handles the exit of an instance on a node: it decides whether an instance that spans
// several nodes starts again, and ends the run if a role has too few instances left.
func (h *Head) handleExit(ctx context.Context, mark record.InstanceMark, at time.Time) {
	rec, err := h.readExit(ctx, mark)
	if err != nil {
		return // it is read again with the next listing, when the share responds
	}
	state := h.instances[mark.Instance]
	if state.Role.IsFlagWorld() {
		h.decideRanks(state, mark, rec)
	}
	var effect roles.ExitOutcome
	var lacks bool
	exit := roles.Exit{Code: max(1, health.OutcomeOfCause(rec.Failure).Code), CannotExecute: isFinal(rec.Failure)}
	h.update(func() {
		effect = state.RecordExit(mark, rec, exit, at)
		lacks = effect == roles.ExitIsLoss && h.lacks(state.Role)
		if effect != roles.ExitIgnored && !lacks && !state.Role.IsFlagWorld() {
			// Those that are not mentioned any more are forgotten.
			h.tolerated = append(slices.DeleteFunc(h.tolerated, func(earlier toleratedExit) bool {
				return at.Sub(earlier.at) > toleratedWindow
			}), toleratedExit{at, rec.Message})
		}
	})
	if state.Role.BuiltIn.IsService() {
		h.loseSandbox(rec, lacks, at)
		return
	}
	h.logExit(state, rec, mark.Node, effect, lacks)
	if effect == roles.ExitIgnored && state.Role.IsFlagWorld() && state.IsEnded() {
		h.cfg.Failed(rec.Failure, at) // the verdict compares it with the first one
		return
	}
	h.evaluate(state.Role, rec, effect, lacks, at)
	if effect == roles.ExitRestarts && state.Spans() {
		h.advanceAfter(time.Until(state.ResumeAt))
	}
}

// decideRanks decides whether the ranks of flags start again after an exit.
func (h *Head) decideRanks(state *instanceState, mark record.InstanceMark, rec *record.InstanceExit) {
	h.mu.Lock()
	isFirst := state.IsFirstExit(mark)
	h.mu.Unlock()
	if isFirst && h.cfg.RunCtx.Err() == nil {
		rec.Message, rec.Pause, rec.WillRestart = h.cfg.FlagRanks.DecideRestart(rec.Failure, mark.Generation)
	}
}

// recordReadTimeout limits the time for reading a record that another one may replace.
const recordReadTimeout = 10 * time.Second

// readExit reads the record of an exit. A record that cannot be read although the share responds is
// replaced by one that says so.
func (h *Head) readExit(ctx context.Context, mark record.InstanceMark) (*record.InstanceExit, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, recordReadTimeout, health.ErrDeadline)
	defer cancel()
	rec, state := new(record.InstanceExit), h.instances[mark.Instance]
	name, content, kind := signal.InstanceName(mark, h.cfg.Size), record.Record(rec), health.ServiceDied
	if state.Role.BuiltIn == roles.BuiltInSandbox {
		name = signal.NodeName(mark.Node, h.cfg.Size, record.StateSandboxFailed)
		content, kind = &rec.Failure, health.SandboxDied
	}
	err := h.cfg.Dir.ReadRecord(ctx, signal.NodesDir, name, content)
	switch {
	case err == nil:
		return rec, nil
	case ctx.Err() != nil || signal.IsStalled(err):
		return nil, err
	}
	rec.Failure = health.NewFailure(kind,
		"%s.%d has exited, and its record cannot be read: %v", state.Role.Name, state.Instance.Index, err).Failure
	rec.NodeIndex, rec.Role, rec.Index = mark.Node, state.Role.Name, state.Instance.Index
	return rec, nil
}

// evaluate ends the run if a role has fewer instances than it needs, or if all of its instances fail
// together again and again. rec is the exit that may be the cause, and lacks reports that the role has
// too few instances because of it.
func (h *Head) evaluate(role *roles.RolePlan, rec *record.InstanceExit, effect roles.ExitOutcome, lacks bool,
	at time.Time) {
	h.mu.Lock()
	count := h.count(role)
	failures := h.failures[role.Name]
	if count.Down <= 1 || failures.first.Message == "" {
		failures.first = rec.Failure
	}
	isCommon := failures.Record(role, count.Down, at)
	first := failures.first
	earlier := h.describeTolerated(at, rec.Message)
	need := role.Required.Run
	if !h.gateOpen {
		need = role.Required.Start
	}
	h.mu.Unlock()
	cause := rec.Failure
	all := len(role.Instances)
	switch {
	case h.cfg.RunCtx.Err() != nil:
		return
	case isCommon:
		cause = first
		cause.Message = fmt.Sprintf("all %d instances of role %s have exited again within %s; the "+
			"first: %s", all, role.Name, role.Restarts.Window, cause.Message)
	case !lacks && effect == roles.ExitIsLoss:
		h.cfg.Log.Warn(fmt.Sprintf("role %s goes on with %d of %d instances: %s", role.Name,
			all-count.Lost, all, rec.Message))
		return
	case !lacks:
		switch {
		case effect == roles.ExitIgnored:
		case role.IsFlagWorld():
			h.cfg.Log.Warn(rec.Message)
		default:
			h.cfg.Log.Warn(fmt.Sprintf("%s.%d is started again: %s", role.Name, rec.Index, rec.Message))
		}
		return
	case all > 1:
		cause.Message += fmt.Sprintf("; role %s has %d of %d instances left and needs %d", role.Name,
			all-count.Lost, all, need.Of(all))
	}
	cause.Message += earlier
	h.cfg.Failed(cause, at)
}

// lacks reports whether a role has fewer instances left than it needs. The caller holds [Head.mu].
func (h *Head) lacks(role *roles.RolePlan) bool {
	return role.LacksInstances(h.count(role).Lost, h.gateOpen)
}

// toleratedWindow is how long a tolerated exit is mentioned with a failure that follows.
const toleratedWindow = time.Minute

// describeTolerated describes the exits that were tolerated in the minute before at: a failure that
// follows may be their consequence. besides is the message of the failure itself. The caller holds
// [Head.mu].
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

// maxEventLines is the number of last lines of a log in an event.
const maxEventLines = 10

// logExit writes an event about the exit of an instance on a node, and what follows from it.
func (h *Head) logExit(state *instanceState, rec *record.InstanceExit, node int, effect roles.ExitOutcome,
	lacks bool) {
	follows := ""
	switch {
	case effect == roles.ExitRestarts, effect == roles.ExitSuperseded:
		follows = "it is started again"
	case lacks:
		follows = "the run ends"
	case effect == roles.ExitIsLoss:
		follows = "the role goes on without it"
	}
	h.cfg.Events.WriteEvent(eventlog.InstanceExited, eventlog.Fields{
		ObjectFields: eventlog.ObjectFields{Child: fmt.Sprintf("%s.%d", state.Role.Name, state.Instance.Index)},
		FailureFields: eventlog.FailureFields{Subject: &node, Kind: rec.Kind, What: rec.Message,
			Lines: rec.Lines[max(0, len(rec.Lines)-maxEventLines):]},
		LinkFields: eventlog.LinkFields{Reason: follows},
	})
}

// loseSandbox ends the run by the failure of a sandbox if too few are left.
func (h *Head) loseSandbox(rec *record.InstanceExit, lacks bool, at time.Time) {
	if lacks {
		h.cfg.Failed(rec.Failure, at)
	} else {
		h.cfg.Log.Warn("a sandbox is lost that the gate does not require", zap.String("what", rec.Message))
	}
}
