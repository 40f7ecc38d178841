package daemon

import (
	"context"
	"errors"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/advice"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
)

// account returns the data from which the final message of this node, and the advice, are derived.
func (n *node) account(end *run.Ending, result *signal.Result) *advice.Account {
	traits := framework.TraitsOf(n.cfg.Framework)
	a := &advice.Account{
		Result: result, ID: n.id, Names: n.id.Hosts, Consequences: end.Consequences, LogDir: n.cfg.LogDir, World: n.cfg.World.Wanted(),
		DriverGrace: n.CutGrace(n.cfg.Times.DriverGrace), Bounds: n.cfg.Bounds(), OwnLogs: traits.Logs, ProgramFlag: traits.Program,
		Driver: strings.Join(n.cfg.Driver[:min(1, len(n.cfg.Driver))], ""),
	}
	a.DriverEnd, a.DriverSilent = n.children.DriverEnd()
	if n.Dir != nil {
		a.Path = n.Dir.Path()
	}
	if len(result.Hosts) > 0 {
		a.Names = result.Hosts
	}
	return a
}

// lastWords prints the head's final message: how the job has ended. left are the names of children
// that could not be ended.
func (h *head) lastWords(end *run.Ending, result *signal.Result, left []string) {
	a := h.account(end, result)
	a.Left = left
	h.speak(end, a.HeadWords())
}

// ownWords prints a worker's final message: why this node ends. If this worker has written the
// result in place of a lost head, it prints the head's message instead.
func (n *node) ownWords(end *run.Ending, left []string) {
	result := end.Result
	if result == nil {
		result = n.result(end)
	}
	a := n.account(end, result)
	a.Left = left
	if end.Result != nil {
		n.speak(end, a.HeadWords())
		return
	}
	a.Advice = a.Advise()
	n.speak(end, a.NodeWords())
}

// aloneWords prints the final message of a daemon without a run directory: why it ends.
func (n *node) aloneWords(end *run.Ending) {
	a := n.account(end, &signal.Result{Code: end.Code, Word: end.Word, Why: end.Why, Cause: end.Cause})
	a.Advice = a.Advise()
	n.speak(end, a.AloneWords())
}

// speak prints words as the final message. In the log it is one line, with the cause of the end.
func (n *node) speak(end *run.Ending, words []string) {
	level, fields := zapcore.InfoLevel, []zap.Field{zap.Int("code", end.Code)}
	if end.Cause != nil {
		level = zapcore.ErrorLevel
		fields = append(fields, zap.String("kind", end.Cause.Kind), zap.String("phase", end.Cause.Phase))
	}
	n.voice.LastWords(words, level, end.Why, fields...)
}

// withLines returns the message of a failure, followed by the last lines of the related log.
func (n *node) withLines(cause *signal.FailedRecord) string {
	a := &advice.Account{Result: &signal.Result{Cause: cause}, Path: n.Dir.Path()}
	return strings.Join(append([]string{cause.What}, a.Quote()...), "\n")
}

// leaveAlone prints why this daemon could not join, and returns its exit code. It is derived from
// err alone, because no other node can provide one.
func (n *node) leaveAlone(err error) int {
	if end, ok := errors.AsType[*run.Ending](context.Cause(n.Life)); ok {
		return end.Code
	}
	f := health.AsFailure(err)
	f.Rank, f.Host, f.Phase = n.id.Rank, n.id.Host, n.Trail.Phase()
	outcome := health.OutcomeOf(health.Kind(f.Kind))
	n.aloneWords(&run.Ending{Code: outcome.Code, Word: outcome.Word, Why: f.What, Cause: &f.FailedRecord})
	if n.cfg.Spares() && n.id.Rank > 0 && f.Kind == string(health.Share) {
		n.Log.Warn("the job may go on without this node, which leaves with 0 for it")
		return 0
	}
	return outcome.Code
}

// result returns the result of the run, as far as this node knows it.
func (n *node) result(end *run.Ending) *signal.Result {
	return &signal.Result{
		Run: n.Dir.Name(), Size: n.id.Size, Code: end.Code, Word: end.Word, Why: end.Why, Cause: end.Cause, Nodes: end.Nodes,
		Circumstances: signal.Circumstances{AtPhase: end.Phase, AfterGate: end.Opened, Consequences: end.Bearable()},
		Course:        signal.Course{Took: n.Trail.Age(), Program: n.cfg.Program, Phases: n.Trail.Passed()}, Requeue: end.Requeue,
		NextAttempt: end.Again.Attempt,
	}
}
