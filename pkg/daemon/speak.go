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
	"github.com/bringupd/bringupd/pkg/signal"
)

// account is what the last words of this node are made of.
func (n *node) account(end *ending, result *signal.Result) *advice.Account {
	a := &advice.Account{
		Result: result, ID: n.id, Names: n.id.Hosts, Consequences: end.consequences, LogDir: n.cfg.LogDir,
		DriverGrace: n.cfg.Times.DriverGrace, Bounds: n.cfg.Bounds(),
	}
	a.OwnLogs = framework.TraitsOf(n.cfg.Framework).Logs
	if n.dir != nil {
		a.Path = n.dir.Path()
	}
	if len(result.Hosts) > 0 {
		a.Names = result.Hosts
	}
	if len(n.cfg.Driver) > 0 {
		a.Driver = n.cfg.Driver[0]
	}
	return a
}

// lastWords say how the job has ended, for whoever reads its output.
func (h *head) lastWords(end *ending, result *signal.Result, left []string) {
	a := h.account(end, result)
	a.Left = left
	h.speak(end, a.HeadWords())
}

// ownWords say why this node ends. Who had to write the result because the head
// is gone says what the head would.
func (n *node) ownWords(end *ending, left []string) {
	result := end.result
	if result == nil {
		result = n.result(end)
	}
	a := n.account(end, result)
	a.Left = left
	if end.result != nil {
		n.speak(end, a.HeadWords())
		return
	}
	a.Advice = a.Advise()
	n.speak(end, a.NodeWords())
}

// aloneWords say why a daemon ends that has no run directory.
func (n *node) aloneWords(end *ending) {
	a := n.account(end, &signal.Result{Code: end.code, Word: end.word, Why: end.why, Cause: end.cause})
	a.Advice = a.Advise()
	n.speak(end, a.AloneWords())
}

// speak says the last words.
func (n *node) speak(end *ending, words []string) {
	level, fields := zapcore.InfoLevel, []zap.Field{zap.Int("code", end.code)}
	if end.cause != nil {
		level = zapcore.ErrorLevel
		fields = append(fields, zap.String("kind", end.cause.Kind), zap.String("phase", end.cause.Phase))
	}
	n.voice.LastWords(words, level, end.why, fields...)
}

// withLines is what failed with the last lines of the log that speaks of it.
func (n *node) withLines(cause *signal.FailedRecord) string {
	a := &advice.Account{Result: &signal.Result{Cause: cause}, Path: n.dir.Path()}
	return strings.Join(append([]string{cause.What}, a.Quote()...), "\n")
}

// mostConsequences is how many of them a result bears: there can be one a node.
const mostConsequences = 100

// bearable are consequences as a result has them.
func bearable(all []signal.FailedRecord) []signal.FailedRecord {
	var kept []signal.FailedRecord
	for _, failure := range all[:min(len(all), mostConsequences)] {
		failure.Lines = nil // the peer's own record has them
		kept = append(kept, failure)
	}
	return kept
}

// leaveAlone ends a worker that could not even join: nobody else can tell it a
// code.
func (n *node) leaveAlone(err error) int {
	if end, ok := errors.AsType[*ending](context.Cause(n.life)); ok {
		return end.code
	}
	f := health.AsFailure(err)
	f.Rank, f.Host, f.Phase = n.id.Rank, n.id.Host, n.trail.Phase()
	outcome := health.OutcomeOf(health.Kind(f.Kind))
	n.aloneWords(&ending{code: outcome.Code, word: outcome.Word, why: f.What, cause: &f.FailedRecord})
	if n.cfg.Spares() && n.id.Rank > 0 && f.Kind == string(health.Share) {
		n.log.Warn("the job may go on without this node, which leaves with 0 for it")
		return 0
	}
	return outcome.Code
}

// result is how it all ended, as this node knows it.
func (n *node) result(end *ending) *signal.Result {
	return &signal.Result{
		Run: n.dir.Name(), Size: n.id.Size, Code: end.code, Word: end.word, Why: end.why, Cause: end.cause, Nodes: end.nodes,
		Circumstances: signal.Circumstances{AtPhase: end.phase, AfterGate: end.opened, Consequences: bearable(end.consequences)},
		Course:        signal.Course{Took: n.trail.Age(), Program: n.cfg.Program, Phases: n.trail.Passed()}, Requeue: end.requeue,
	}
}
