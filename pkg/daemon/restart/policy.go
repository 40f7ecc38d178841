package restart

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Decide decides whether another attempt follows a failure of the run, or whether the job is
// requeued. It sets the decision in end, and returns end. If the job has been requeued as often as
// allowed, it also replaces the exit code.
func Decide(cfg *deps.Config, end *lifecycle.Outcome, endRequested bool) *lifecycle.Outcome {
	if end.Orderly {
		return end
	}
	id := &cfg.Identity
	policy := newAttemptPolicy(cfg, id.Attempt, end.GateOpenTime > 0)
	policy.addRankRestarts(cfg, len(end.RankRestarts))
	policy.endRequested, policy.progress = endRequested, end.Progress
	policy.setUnusable(cfg, end.AllFailures())
	restarts, reason := decideAttempt(*end.Cause, policy)
	end.NextAttempt.Reason = reason
	if restarts {
		end.NextAttempt.Number = policy.attempt + 1
		return end
	}
	decideJobRequeue(cfg, end, endRequested)
	return end
}

// DecideRanks decides whether the ranks of flags start again in the same run after a failure, and
// why: as another attempt, which needs neither checks nor services. The ranks have been started
// again generation times in this run. p is the progress of the job; nil if it is unknown.
func DecideRanks(cfg *deps.Config, cause record.Failure, generation int, p *record.Progress, endRequested bool,
) (again bool, reason string) {
	if cause.Kind != health.RankFailed && cause.Kind != health.RankAborted {
		return false, ""
	}
	policy := newAttemptPolicy(cfg, cfg.Identity.Attempt, true)
	policy.addRankRestarts(cfg, generation)
	policy.endRequested, policy.progress = endRequested, p
	return decideAttempt(cause, policy)
}

// RankPause returns the pause before ranks start again at a time, after earlier restarts of the
// same run.
func RankPause(earlier []time.Time, at time.Time) time.Duration {
	streak := 1
	for _, began := range slices.Backward(earlier) {
		if at.Sub(began) > stableRunTime {
			break
		}
		streak, at = streak+1, began
	}
	return restartPause(streak)
}

// decideJobRequeue decides whether the job is requeued, by a command of the user or the launcher,
// after an end that no attempt follows.
func decideJobRequeue(cfg *deps.Config, end *lifecycle.Outcome, endRequested bool) {
	id := &cfg.Identity
	if again := cfg.After.Requeue; again.OnFailure {
		policy := requeuePolicy{again.Most, id.Restart, "", endRequested}
		if again.By == nil {
			policy.obstacle = id.Launcher.CommandHints(id.Job).NoRequeueReason
		}
		outcome, decision := decideRequeue(health.OutcomeOfCause(*end.Cause), policy)
		end.Code, end.Name, end.Requeue = outcome.Code, outcome.Name, &decision
	}
}

// ReplaceDriverEnd returns a failure in place of err, the orderly end of a driver that has not ended
// with 0, if that leads to a restart. Otherwise it sets the reason in the end, and returns err. steps
// returns the progress of the job.
func ReplaceDriverEnd(cfg *deps.Config, err error, steps func() *record.Progress) error {
	end, ended := errors.AsType[*lifecycle.Outcome](err)
	if !ended || !end.Orderly || end.Requested || end.Code == 0 || end.Name != health.DriverOutcomeName {
		return err
	}
	f := health.NewFailure(health.DriverFailed, "%s", end.Reason)
	f.Code = end.Code
	policy := newAttemptPolicy(cfg, cfg.Identity.Attempt, true)
	policy.setUnusable(cfg, nil)
	policy.progress = steps()
	restarts, reason := decideAttempt(f.Failure, policy)
	if !restarts {
		end.NextAttempt.Reason = reason
		return err
	}
	return f
}

// Succession returns what follows the end of an attempt, and what has preceded it.
func Succession(cfg *deps.Config, end *lifecycle.Outcome) record.Succession {
	s := record.Succession{Requeue: end.Requeue, NextAttempt: end.NextAttempt.Number}
	if cfg.After.Restarts > 0 {
		history := withRankRestarts(cfg.Previous.History, end.RankRestarts)
		s.History = &history
	}
	return s
}

// withRankRestarts returns a history with restarts of ranks in the same run.
func withRankRestarts(h record.RestartHistory, at []time.Time) record.RestartHistory {
	h.Count += len(at)
	h.Times = slices.Concat(h.Times, at)
	return h
}

// attemptPolicy has the facts besides the failure that decide whether another attempt follows.
type attemptPolicy struct {
	maxRestarts  int // 0: none
	rules        config.RestartRules
	attempt      int              // the failed attempt: 0 is the first; a restart of ranks begins another one
	used         int              // number of restarts so far, also before a requeue
	progress     *record.Progress // nil if it is unknown
	gateOpened   bool             // the failure was in a running job
	endRequested bool
	unusable
	nodes    int  // number of nodes in the launch
	minNodes int  // minimum number of nodes for the driver, or the roles
	forRoles bool // the run has roles
}

// unusable has the nodes that cannot take part any more.
type unusable struct {
	unfitNodes []int // sorted
	// lostSteps names the daemons of further steps that are lost for good. Their nodes are unfit for
	// that reason.
	lostSteps string
}

// setUnusable sets the nodes that cannot take part in the next attempt if this one ends with the given
// failures.
func (p *attemptPolicy) setUnusable(cfg *deps.Config, failures []record.Failure) {
	p.unfitNodes = unusableNodes(cfg, failures)
	ofSteps := lostStepMembers(&cfg.Identity, slices.Concat(cfg.Previous.Failures, failures))
	p.lostSteps = cfg.Identity.FormatNodes(ofSteps, cfg.Identity.HostOf)
}

// newAttemptPolicy returns the facts about an attempt, without those about its end.
func newAttemptPolicy(cfg *deps.Config, attempt int, gateOpened bool) attemptPolicy {
	id, after := &cfg.Identity, &cfg.After
	return attemptPolicy{
		maxRestarts: after.Restarts, rules: after.Rules, attempt: attempt, gateOpened: gateOpened,
		// A daemon that was restarted may know fewer restarts than the number of its attempt says.
		used:  max(cfg.Previous.History.Count, attempt),
		nodes: id.Size, minNodes: cfg.Team.ForSize(id.Size).Min, forRoles: cfg.Roles.AreGiven(),
	}
}

// addRankRestarts adds restarts of ranks in the same run.
func (p *attemptPolicy) addRankRestarts(cfg *deps.Config, count int) {
	p.attempt += count
	p.used = max(cfg.Previous.History.Count+count, p.attempt)
}

// decideAttempt reports whether a run with this cause is restarted within its launch, and why; the
// reason is empty if the user does not want restarts.
func decideAttempt(cause record.Failure, p attemptPolicy) (restarts bool, reason string) {
	outcome := health.OutcomeOfCause(cause)
	what := fmt.Sprintf("%s (%d)", outcome.Name, outcome.Code)
	left := p.nodes - len(p.unfitNodes)
	switch {
	case p.maxRestarts == 0:
		return false, ""
	case p.endRequested, cause.Kind == health.Signalled:
		return false, what + ": the job was told to end from outside"
	case !p.isTrigger(cause.Kind):
		return false, what + p.noTriggerReason(cause.Kind)
	case isMistake(outcome.Code) || slices.Contains(p.rules.NoCodes, outcome.Code):
		return false, what + ": there is no restart after this code"
	case p.used >= p.maxRestarts:
		return false, fmt.Sprintf("%s again, in attempt %d of at most %d",
			what, p.attempt+1, p.attempt+1)
	case p.used > 0 && isOfProgram(cause.Kind) && p.progress != nil && !p.progress.Gained:
		return false, fmt.Sprintf("%s again, and no step was gained since the last restart: the maximum is still %s",
			what, progress.FormatStep(p.progress.MaxStep))
	case cause.Kind == health.NotReturned:
		return false, what + ": the lost daemons were not restarted"
	case p.lostSteps != "" && (slices.Contains(p.unfitNodes, 0) || left < p.minNodes):
		return false, fmt.Sprintf("%s: nothing restarts %s, and there is no other node for its roles",
			what, p.lostSteps)
	case slices.Contains(p.unfitNodes, 0):
		return false, what + ": the head's node or its daemon has failed, and the launch requires it"
	case left < p.minNodes && p.forRoles:
		return false, fmt.Sprintf("%s: %d of %d nodes are left, and the roles need %d", what, left, p.nodes, p.minNodes)
	case left < p.minNodes:
		return false, fmt.Sprintf("%s: %d of %d nodes are left, and the driver needs %d (--nnodes)",
			what, left, p.nodes, p.minNodes)
	default:
		return true, fmt.Sprintf("%s: attempt %d of at most %d follows",
			what, p.attempt+2, p.attempt+1+p.maxRestarts-p.used)
	}
}

// isOfProgram reports whether the program itself has failed: another attempt of a program that gains
// no step will not go better. The loss of a node or a service says nothing about the program.
func isOfProgram(kind health.Kind) bool {
	return kind == health.RankFailed || kind == health.RankAborted || kind == health.DriverFailed
}

// isTrigger reports whether the user wants a restart after failures of this kind, and another
// attempt may go well.
func (p attemptPolicy) isTrigger(kind health.Kind) bool {
	any := p.rules.On == config.RestartOnAny
	switch kind {
	case health.ServiceDied, health.SandboxDied:
		return p.gateOpened && (any || p.rules.On == config.RestartOnService)
	case health.RankFailed, health.RankAborted:
		return p.rules.RestartsRanks()
	case health.DriverFailed:
		return any
	default:
		return mayRetry(health.OutcomeOfKind(kind))
	}
}

// noTriggerReason returns why there is no restart after a failure of this kind, to follow its name.
// It names the setting that would change that.
func (p attemptPolicy) noTriggerReason(kind health.Kind) string {
	all := p
	all.rules.On = config.RestartOnAny
	switch {
	case !all.isTrigger(kind):
		return " cannot be fixed by another attempt"
	case kind == health.RankFailed, kind == health.RankAborted:
		return " does not lead to a restart without --restart-on=rank"
	case kind == health.DriverFailed:
		return " does not lead to a restart without --restart-on=any"
	default:
		return " does not lead to a restart without --restart-on=service"
	}
}

// isMistake reports whether an exit code says that the command line, the launch, the log directory
// or the program's file is wrong, which another attempt does not change.
func isMistake(code int) bool { return code >= 64 && code <= 66 || code == 126 || code == 127 }

// requeuePolicy has the facts besides the failure that decide whether the job is requeued.
type requeuePolicy struct {
	maxRequeues  int
	restarts     int    // number of restarts so far, for any reason
	obstacle     string // why it cannot be requeued, as a sentence; empty: it can
	endRequested bool
}

// decideRequeue decides whether a job that failed with this outcome is requeued. It returns
// RequeuesExhausted's outcome if the job should be requeued but has reached the maximum.
func decideRequeue(
	outcome health.Outcome, p requeuePolicy,
) (_ health.Outcome, decision record.RequeueDecision) {
	what := fmt.Sprintf("%s (%d)", outcome.Name, outcome.Code)
	switch {
	case p.endRequested:
		decision.Reason = what + ": the job was told to end from outside; Slurm itself may requeue " +
			"it, after a preemption or a node failure"
	case !mayRetry(outcome):
		decision.Reason = what + " cannot be fixed by another try"
	case p.obstacle != "":
		decision.Reason = what + " justifies another try, but " + p.obstacle
	case p.restarts >= p.maxRequeues:
		outcome = health.OutcomeOfKind(health.RequeuesExhausted)
		decision.Reason = fmt.Sprintf("%s again, and the job has been requeued %d times of at most %d",
			what, p.restarts, p.maxRequeues)
	default:
		decision.Wanted = true
		decision.Reason = fmt.Sprintf("%s: the job is requeued (%d of at most %d)", what, p.restarts+1, p.maxRequeues)
	}
	return outcome, decision
}

// mayRetry reports whether the failure may not occur again in another try.
func mayRetry(outcome health.Outcome) bool {
	return outcome.Requeue == health.RequeueYes || outcome.Requeue == health.RequeueElsewhere
}

// allUnfitNodes returns the sorted nodes that must not be used after these failures. A node that
// was only lost may return, but not without the daemon of a further step that nothing restarts.
func allUnfitNodes(id *launcher.Identity, previous deps.PreviousAttempts, failures []record.Failure) (nodes []int) {
	for _, failure := range failures {
		switch kind := failure.Kind; {
		case kind == health.CheckFailed, kind == health.GPUFailed && !health.LeavesGPUFit(failure):
			nodes = append(nodes, failure.NodeIndex)
		case kind == health.NodesDiffer:
			nodes = append(nodes, failure.LostNodes...)
		}
	}
	for _, member := range lostStepMembers(id, failures) {
		nodes = append(nodes, record.NodeOfMember(member, id.Size))
	}
	for _, dropped := range previous.UnfitNodes {
		nodes = append(nodes, dropped.NodeIndex)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// lostStepMembers returns the sorted member indices of the daemons of further steps that have died, if
// nothing can restart them.
func lostStepMembers(id *launcher.Identity, failures []record.Failure) []int {
	if !id.Launcher.LosesDaemonsForGood() {
		return nil
	}
	return slices.DeleteFunc(deps.LostNodes(failures, hasDied), func(member int) bool { return member < id.Size })
}

func hasDied(kind health.Kind) bool { return kind == health.DaemonDied }

// lostNodes returns the sorted indices of the lost nodes in the failures of one run.
func lostNodes(failures []record.Failure) []int { return deps.LostNodes(failures, health.IsPeerLoss) }

// unusableNodes returns the sorted nodes that cannot take part in the next attempt: those that are
// unfit, and those whose daemons have died if nothing can restart them.
func unusableNodes(cfg *deps.Config, failures []record.Failure) []int {
	id := &cfg.Identity
	nodes := allUnfitNodes(id, cfg.Previous, failures)
	if id.Launcher.LosesDaemonsForGood() {
		for _, member := range deps.LostNodes(slices.Concat(cfg.Previous.Failures, failures), hasDied) {
			nodes = append(nodes, record.NodeOfMember(member, id.Size))
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// addAttempt returns the information for the attempt that follows one with the given failures, of
// which the first is the cause. at is the time of the restart.
func addAttempt(
	previous deps.PreviousAttempts, failures []record.Failure, id *launcher.Identity, at time.Time,
) (next deps.PreviousAttempts) {
	dropped := func(node int) record.DroppedNode {
		d := record.DroppedNode{NodeIndex: node, Host: id.HostOf(node)}
		isOn := func(member int) bool { return record.NodeOfMember(member, id.Size) == node }
		for _, failure := range failures {
			if failure.NodeIndex == node || slices.ContainsFunc(failure.LostNodes, isOn) {
				d.Reason = failure.Message
				break
			}
		}
		return d
	}
	next.UnfitNodes = slices.Clone(previous.UnfitNodes)
	next.EarlierDuration = previous.EarlierDuration
	next.Failures = slices.Concat(previous.Failures, failures)
	for _, node := range allUnfitNodes(id, previous, failures) {
		isNode := func(d record.DroppedNode) bool { return d.NodeIndex == node }
		if !slices.ContainsFunc(previous.UnfitNodes, isNode) {
			next.UnfitNodes = append(next.UnfitNodes, dropped(node))
		}
	}
	for _, node := range lostNodes(failures) {
		next.LostNodes = append(next.LostNodes, dropped(node))
	}
	next.History = addNodeFailures(previous.History, failures, id)
	next.History.Count++
	next.History.Times = append(slices.Clone(previous.History.Times), at)
	return next
}

// addNodeFailures returns the history with the nodes that the cause, the first of the failures, is
// about. The failure of a service, of a rank or of the driver counts against no node.
func addNodeFailures(h record.RestartHistory, failures []record.Failure, id *launcher.Identity) record.RestartHistory {
	if len(failures) == 0 {
		return h
	}
	nodes := allUnfitNodes(id, deps.PreviousAttempts{}, failures[:1])
	if health.IsPeerLoss(failures[0].Kind) {
		nodes = failures[0].LostNodes
	}
	h.NodeFailures = maps.Clone(h.NodeFailures)
	for _, node := range nodes {
		if h.NodeFailures == nil {
			h.NodeFailures = make(map[string]int)
		}
		h.NodeFailures[deps.HistoryName(id, record.NodeOfMember(node, id.Size))]++
	}
	return h
}

// stableRunTime is the time with an open gate after which earlier failures do not count any more.
const stableRunTime = 10 * time.Minute

// restartPause returns the pause before an attempt, after row consecutive early failures.
func restartPause(row int) time.Duration {
	return roles.RestartPolicy{MinBackoff: minBackoff, MaxBackoff: config.MaxBackoff}.Pause(row)
}

// minBackoff is the pause before the second restart in a row.
const minBackoff = time.Second

// actionKind is a daemon's next action.
type actionKind int

const (
	actionBegin  actionKind = iota // take part in the attempt; the head makes it
	actionAwait                    // await its end: an earlier daemon of this node was in it
	actionFinish                   // the launch has no other attempt
)

// nextMove is the next action, with its attempt.
type nextMove struct {
	actionKind
	attempt int
}

type attemptState struct {
	newest    int // -1: there is none
	ended     bool
	next      int  // the attempt that follows, according to its result; 0: none
	succeeded bool // it has ended in order, with 0
	joined    bool // a daemon of this node has taken part
}

// chooseMove returns the action of a daemon that needs an attempt of at least floor. relaunches
// reports whether its launcher restarts daemons.
func chooseMove(s attemptState, floor int, relaunches bool) nextMove {
	switch {
	case s.newest < floor:
		return nextMove{actionBegin, floor}
	case !s.ended && !s.joined:
		return nextMove{actionBegin, s.newest}
	case !s.ended:
		return nextMove{actionAwait, s.newest}
	case s.next > s.newest || relaunches && !s.succeeded:
		return nextMove{actionBegin, max(s.next, s.newest+1)}
	default:
		return nextMove{actionFinish, s.newest}
	}
}

// CarryOut carries out the decision of [Decide] on the node that has written the result: it
// announces the next attempt, or requests from the launcher that it start the failed job again.
// endRequested reports whether the job was asked to end meanwhile, and ctx ends when no time is
// left. It must be the last action of the daemon, because the launcher may end the rest of the job
// as soon as it receives the request.
func CarryOut(
	ctx context.Context, end *lifecycle.Outcome, requeuer launcher.Requeuer, endRequested func() bool,
	warn func(message string, fields ...zap.Field),
) {
	switch {
	case end.NextAttempt.Number > 0:
		warn(end.NextAttempt.Reason)
		return
	case end.NextAttempt.Reason != "":
		warn("bringupd starts no further attempt: " + end.NextAttempt.Reason)
	}
	switch again := end.Requeue; {
	case again == nil:
		return
	case !again.Wanted:
		warn("bringupd does not requeue the job: " + again.Reason)
		return
	case endRequested():
		warn("bringupd does not requeue the job: it was told to end in the meantime")
		return
	}
	send := func(request func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeoutCause(ctx, launcher.RequeueTimeout, health.ErrDeadline)
		defer cancel()
		return request(ctx)
	}
	if err := send(requeuer.RequeueJob); err != nil {
		warn("the job cannot be requeued, although its failure allows it",
			zap.Error(err), zap.String("why", end.Requeue.Reason))
		return
	}
	warn(end.Requeue.Reason)
	if len(end.BadNodes) == 0 {
		return
	}
	err := send(func(ctx context.Context) error { return requeuer.ExcludeHosts(ctx, end.BadNodes) })
	if err != nil {
		warn("the job may be started on a bad node again",
			zap.Strings("bad nodes", end.BadNodes), zap.Error(err))
	}
}
