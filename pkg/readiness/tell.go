package readiness

import (
	"encoding/json"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/trail"
)

// TellWaits returns what tells people, of each report in turn, what the node's
// checks wait for: each time that this is something else.
func TellWaits(events *trail.Trail, log *zap.Logger) func(check.Report) {
	var told string
	return func(report check.Report) {
		waits := check.Summary(report.Findings, check.Wait)
		if waits == told {
			return
		}
		level := zapcore.DebugLevel // a number in it changes each time
		if told == "" {
			level = zapcore.InfoLevel
		}
		told = waits
		log.Log(level, "waiting for what is not ready yet", zap.String("checks", waits), zap.Duration("for", report.Took.Round(time.Second/10)))
		events.Event(trail.Waits, trail.Fields{Checks: waits})
	}
}

// Note leaves a trace of each check that has something to tell. Those that
// pass are counted: what they saw is in the record.
func Note(events *trail.Trail, report check.Report) {
	passed := 0
	for _, found := range report.Findings {
		if found.Quiet() {
			passed++
			continue
		}
		events.Event(trail.Check, trail.Fields{Check: found.ID, Verdict: string(found.Verdict), What: found.Observed})
	}
	events.Event(trail.Checked, trail.Fields{Verdict: string(report.Verdict), Passed: &passed, TookNS: report.Took.Nanoseconds()})
}

// Unfit is the failure that a node, as messages name it, does not pass its checks. It counts
// against the node if one of them is evidence of that.
func Unfit(report check.Report, node string) *health.Failure {
	kind, fails := health.CheckUser, check.Of(report.Findings, check.Fail)
	for _, f := range fails {
		switch {
		case f.Class == check.Node:
			kind = health.Check
		case f.Class == check.Environment && kind == health.CheckUser:
			kind = health.CheckEnvironment
		}
	}
	failure := health.Failed(kind, "%s is not fit for the job: %s", node, check.Sentence(fails))
	if data, err := json.Marshal(report); err == nil {
		failure.Report = data
	}
	return failure
}
