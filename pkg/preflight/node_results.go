package preflight

import (
	"encoding/json"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/health"
)

// NewWaitLogger returns a function that logs what the node's checks wait for. The caller passes
// each report in turn; the function logs only changes.
func NewWaitLogger(events *eventlog.EventLog, log *zap.Logger) func(check.Report) {
	var last string
	return func(report check.Report) {
		waits := check.SummarizeFindings(report.Findings, check.Wait)
		if waits == last {
			return
		}
		level := zapcore.DebugLevel // later changes are often only a number
		if last == "" {
			level = zapcore.InfoLevel
		}
		last = waits
		log.Log(level, "waiting for checks that are not ready yet", zap.String("checks", waits),
			zap.Duration("for", report.Took.Round(time.Second/10)))
		events.WriteEvent(eventlog.ChecksWaiting, eventlog.Fields{CheckFields: eventlog.CheckFields{Checks: waits}})
	}
}

// RecordEvents records an event for each finding that needs attention, and one with the verdict and
// the number of findings that do not. The details of these are in the node's record.
func RecordEvents(events *eventlog.EventLog, report check.Report) {
	passed := 0
	for _, found := range report.Findings {
		if found.IsQuiet() {
			passed++
			continue
		}
		events.WriteEvent(eventlog.CheckNotPassed,
			eventlog.Fields{
				CheckFields:   eventlog.CheckFields{Check: found.ID, Verdict: string(found.Verdict)},
				FailureFields: eventlog.FailureFields{What: found.Observed},
			})
	}
	events.WriteEvent(eventlog.ChecksDone,
		eventlog.Fields{
			CheckFields: eventlog.CheckFields{Verdict: string(report.Verdict), Passed: &passed},
			TookNS:      report.Took.Nanoseconds(),
		})
}

// UnfitFailure returns the failure of a node that has not passed its checks. node is its name in
// messages. The failure counts against the node if the class of a failed check is
// [check.ClassNode].
func UnfitFailure(report check.Report, node string) *health.Failure {
	kind, fails := health.CheckUser, check.FilterByVerdict(report.Findings, check.Fail)
	for _, f := range fails {
		switch {
		case f.Class == check.ClassNode:
			kind = health.CheckFailed
		case f.Class == check.ClassEnvironment && kind == health.CheckUser:
			kind = health.CheckEnvironment
		}
	}
	failure := health.NewFailure(kind, "%s is not fit for the job: %s", node, check.FormatSentence(fails))
	isMistake := func(f check.Finding) bool { return f.ID == check.IDNetEnv }
	if kind == health.CheckUser && slices.ContainsFunc(fails, isMistake) {
		mistakes := slices.DeleteFunc(slices.Clone(fails), func(f check.Finding) bool { return !isMistake(f) })
		failure = health.NewFailure(health.Usage, "cannot start the job's programs on %s: %s; %s", node,
			check.FormatSentence(mistakes), mistakes[0].Hint)
	}
	failure.Report, _ = json.Marshal(report)
	return failure
}
