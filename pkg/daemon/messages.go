package daemon

import (
	"context"
	"errors"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/restart"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/advice"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// outcomeSummary returns the data of the final message and the advice of this node.
func (n *node) outcomeSummary(end *lifecycle.Outcome, result *record.Result) *advice.Summary {
	a := &advice.Summary{
		Result: result, ID: n.id, HostNames: n.id.Hosts, Consequences: end.Consequences,
		LogDir: n.cfg.LogDir, HasRanks: n.cfg.World.IsRequested(),
		DriverGrace: n.CutGrace(n.cfg.Times.DriverGrace), GivenGrace: n.cfg.Times.DriverGrace,
		Timeouts:  advice.Timeouts{Join: n.cfg.Times.Join, Start: n.cfg.Times.Start},
		Framework: framework.TraitsOf(n.cfg.Framework),
		Driver:    strings.Join(n.cfg.Driver[:min(1, len(n.cfg.Driver))], ""),
	}
	a.DriverEnd, a.DriverLines = n.children.DriverEnd()
	if n.Dir != nil {
		a.RunDir = n.Dir.Path()
	}
	if len(result.Hosts) > 0 {
		a.HostNames = result.Hosts
	}
	return a
}

// printHeadMessage prints the head's final message: how the job has ended. left are the names of
// children that could not be ended.
func (h *head) printHeadMessage(end *lifecycle.Outcome, result *record.Result, left []string) {
	a := h.node.outcomeSummary(end, result)
	a.LeftProcesses = left
	h.node.printFinalMessage(end, a.HeadMessage())
}

// printWorkerMessage prints a worker's final message: why this node ends. If it has written the
// result, it prints the head's; if the head has decided, the message is only in the log, unless
// children are left.
func (n *node) printWorkerMessage(end *lifecycle.Outcome, left []string) {
	result := end.Result
	if result == nil {
		result = n.buildResult(end)
	}
	a := n.outcomeSummary(end, result)
	a.LeftProcesses = left
	if end.Result != nil {
		n.printFinalMessage(end, a.HeadMessage())
		return
	}
	if end.ByHead && len(left) == 0 {
		n.console.Mute()
	}
	a.Advice = a.NextSteps()
	n.printFinalMessage(end, a.NodeMessage())
}

// printFinalMessage prints words as the final message. In the log it is one line, with the cause of
// the end.
func (n *node) printFinalMessage(end *lifecycle.Outcome, words []string) {
	level, fields := zapcore.InfoLevel, []zap.Field{zap.Int("code", end.Code)}
	if end.Cause != nil {
		level = zapcore.ErrorLevel
		fields = append(fields, zap.String("kind", string(end.Cause.Kind)),
			zap.String("phase", string(end.Cause.Phase)))
	}
	n.console.FinalMessage(words, level, end.Reason, fields...)
}

// exitUnjoined prints why this daemon could not join, and returns its exit code, which follows
// from err alone.
func (n *node) exitUnjoined(err error) int {
	if end, ok := errors.AsType[*lifecycle.Outcome](context.Cause(n.RunCtx)); ok {
		return end.Code
	}
	f := health.AsFailure(err)
	f.NodeIndex, f.Host, f.Phase = n.ownNode(), n.id.Host, n.Events.CurrentPhase()
	outcome := health.OutcomeOfKind(f.Kind)
	end := &lifecycle.Outcome{Code: outcome.Code, Name: outcome.Name, Reason: f.Message, Cause: &f.Failure}
	a := n.outcomeSummary(end, &record.Result{Code: end.Code, Outcome: end.Name, Reason: end.Reason, Cause: end.Cause})
	a.Advice = a.NextSteps()
	n.printFinalMessage(end, a.StandaloneMessage())
	if n.cfg.HasSpares() && n.id.NodeIndex > 0 && f.Kind == health.ShareUnusable {
		n.Log.Warn("the job may continue without this node, which exits with 0 for this reason")
		return 0
	}
	return outcome.Code
}

// buildResult returns the result of the run, as far as this node knows it.
func (n *node) buildResult(end *lifecycle.Outcome) *record.Result {
	result := &record.Result{
		Run: n.Dir.Name(), Size: n.id.Size, Code: end.Code, Outcome: end.Name, Reason: end.Reason,
		Cause: end.Cause, BadNodes: end.BadNodes,
		FailureContext: record.FailureContext{AtPhase: end.Phase, AfterGate: end.GateOpenTime,
			Consequences: end.TruncatedConsequences()},
		RunTimings: record.RunTimings{Duration: n.Events.SinceStart(),
			ProgramVersion: n.cfg.Program, Phases: n.Events.CompletedPhases()}, Progress: end.Progress,
		Succession: restart.Succession(&n.cfg, end),
	}
	switch {
	case end.Cause != nil:
		result.ErrorLine = end.Cause.ErrorLine
	case end.Name == health.DriverOutcomeName:
		driver, _ := n.children.DriverEnd()
		result.ErrorLine = driver.ErrorLine
	}
	return result
}

// carryOutRestart carries out the decision of [restart.Decide] on the node that has written the
// result.
func (n *node) carryOutRestart(end *lifecycle.Outcome) {
	if end.TakenOver || end.Requeue == nil && end.NextAttempt.Reason == "" {
		return
	}
	// The final message has been printed; lines after it are still for the user.
	n.console.UnmuteWarnings()
	defer n.console.Mute()
	restart.CarryOut(n.GraceCtx, end, n.cfg.After.Requeue.By, n.EndRequested.Load, n.Log.Warn)
}

// recordEnd records the end of the run outside the run directory, on the node that has written the
// result: it counts the run in the metrics, and records the nodes that the next job should avoid,
// unless all daemons run on one machine without a launcher.
func (n *node) recordEnd(result *record.Result) {
	hosts := result.BadNodes
	if n.id.Launcher == launcher.LauncherLocal {
		hosts = nil
	}
	if len(hosts) > 0 {
		n.LogWriteError(n.RecordBadNodes(hosts))
	}
	n.telemetry.CountEnd(n.GraceCtx, result, hosts)
}

// runEndCommand runs the user's command for the end of the run, on the node that has written the
// result.
func (n *node) runEndCommand(end *lifecycle.Outcome, result *record.Result) {
	if n.cfg.After.OnEnd == "" || end.TakenOver {
		return
	}
	n.console.UnmuteWarnings()
	defer n.console.Mute()
	lifecycle.RunEndCommand(n.GraceCtx, n.cfg.After.OnEnd,
		n.environ(launcher.ChildCommand, n.cfg.Environ, n.launchSlot(), nil), result, n.Log)
}
