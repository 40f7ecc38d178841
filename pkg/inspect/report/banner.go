package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const maxChainEntries = 12

// buildBanner returns the verdict on the run, or its present state if there is no verdict yet.
func (l viewBuilder) buildBanner(v *View) Banner {
	verdict := l.run.Verdict()
	b := Banner{Tone: SeverityAttention, Word: "Unfinished"}
	switch {
	case l.run.Result != nil, len(l.run.Control.Aborts) > 0:
		return l.endedBanner(v, verdict)
	case verdict != nil:
		b.Title = verdict.Reason + ": the run was ending, and wrote no result"
		b.setCode(verdict.Code, "")
	case hasUnreadableResult(l.run):
		b.Title = "the run has ended, but its result cannot be read: the directory is incomplete"
	case !l.isAlive:
		b.Title = "the run wrote no result, and its daemons show no activity"
	default:
		b = Banner{Tone: SeverityNeutral, Word: "Running", Title: l.status.Summary()}
	}
	return l.completeUnfinished(b, v)
}

func (b *Banner) setCode(code int, word string) {
	b.Code, b.Outcome = &code, word
	all := health.OutcomeTable()
	at := slices.IndexFunc(all, func(o health.Outcome) bool {
		return o.Code == code && (word == "" || word == o.Name)
	})
	if at >= 0 {
		b.Meaning = fmt.Sprintf("%s; requeue: %s", all[at].Meaning, all[at].Requeue)
	}
}

// endedBanner returns the banner of a run whose end is recorded: in its result or, without one, in
// an abort record.
func (l viewBuilder) endedBanner(v *View, r *record.Result) Banner {
	b := Banner{
		Tone: SeverityBad, Word: "Failed", Title: r.Reason, Error: r.ErrorLine, Advice: r.Advice, Bad: r.BadNodes,
	}
	b.setCode(r.Code, r.Outcome)
	switch {
	// Without a result, use the failures that the nodes have recorded.
	case l.run.Result == nil:
		r.Consequences, b.Advice = l.otherFailures(*r.Cause), l.defaultAdvice(v)
	case r.Code == 0:
		b.Tone, b.Word = SeverityGood, "Ended well"
	case r.Cause == nil && r.Outcome == health.DriverOutcomeName:
		b.Word = "The driver failed"
	}
	// Add the chain of failures, and the notes.
	b.setChain(l, r.Cause, r.Consequences)
	b.Events = textutil.MapSlice(r.Events, func(e record.Event) string {
		return nodeName(e.NodeIndex, e.Host) + ": " + formatEvent(e)
	})
	b.Notes = textutil.MapSlice(r.Dropped, func(d record.DroppedNode) string {
		node := nodeName(d.NodeIndex, d.Host)
		return fmt.Sprintf("completed without %s: %s", node, d.Reason)
	})
	if r.Requeue != nil {
		decision := "not requeued: "
		if r.Requeue.Wanted {
			decision = "to be requeued: "
		}
		b.Notes = append(b.Notes, decision+r.Requeue.Reason)
	}
	// If nothing else failed, show the last log lines of the driver.
	at := slices.IndexFunc(v.Logs, func(log LogTail) bool { return log.Name == driverLog })
	if r.Code != 0 && len(b.Chain) == 0 && at >= 0 {
		log := v.Logs[at]
		b.Chain = []CauseEntry{{
			First: true, Host: l.hostName(0), Kind: health.DriverOutcomeName, Phase: phaseDriver, What: b.Title,
			At: v.End, Log: log.Name, Error: r.ErrorLine, Lines: log.Lines[max(0, len(log.Lines)-20):],
		}}
	}
	return b
}

func (b *Banner) setChain(l viewBuilder, cause *record.Failure, consequences []record.Failure) {
	if cause == nil {
		return
	}
	shown := min(len(consequences), maxChainEntries)
	b.Chain = textutil.MapSlice(append([]record.Failure{*cause}, consequences[:shown]...), l.buildCauseEntry)
	b.More = len(consequences) - shown
	b.Chain[0].First = true
	b.Error = cmp.Or(b.Error, cause.ErrorLine)
}

// otherFailures returns the failures that nodes have recorded, except the cause.
func (l viewBuilder) otherFailures(cause record.Failure) (rest []record.Failure) {
	for i := range l.run.Nodes {
		for _, f := range l.run.Nodes[i].Failures {
			if f.NodeIndex != cause.NodeIndex || f.Message != cause.Message {
				rest = append(rest, f)
			}
		}
	}
	return rest
}

func (l viewBuilder) completeUnfinished(b Banner, v *View) Banner {
	if b.Tone != SeverityNeutral {
		if !v.Begin.IsZero() {
			then := timeline.SummarizeRun(l.run, timeline.Observation{Now: l.startedAt.Add(v.Last)}).Summary()
			b.Notes = append(b.Notes, fmt.Sprintf("the last activity of any node was %s before this report was made; "+
				"progress then: %s", textutil.BriefDuration(l.quietFor), then))
		}
		b.Notes = append(b.Notes, "the report shows what the directory contains: the daemons may have been killed, "+
			"or the directory may be incomplete or a copy made while they ran")
		b.Advice = l.defaultAdvice(v)
	}
	// If nodes have recorded failures, the first one is the title.
	failures := l.otherFailures(record.Failure{Header: record.Header{NodeIndex: -1}})
	slices.SortStableFunc(failures, func(a, c record.Failure) int { return a.WrittenAt.Compare(c.WrittenAt) })
	if len(failures) > 0 {
		b.Tone, b.Title = SeverityBad, failures[0].Message
		b.setChain(l, &failures[0], failures[1:])
	}
	return b
}

func (l viewBuilder) defaultAdvice(v *View) (advice []string) {
	if len(v.Logs) > 0 {
		advice = append(advice, "read the ends of the logs below, starting with the head's")
	}
	return append(advice, "ask the launcher how the job ended (sacct -j JOB): no daemon was left to record it")
}

func (l viewBuilder) keyFigures(v *View) (facts []Fact) {
	if !l.run.OtherVersion { // otherwise the states of nodes are unknown
		ready := countMatching(v.Nodes, func(n NodeRow) bool { return n.Ready > 0 })
		f := Fact{Name: "nodes ready", Tone: SeverityGood}
		f.Value = textutil.GroupThousands(ready) + " / " + textutil.GroupThousands(v.Size)
		if ready != v.Size {
			f.Tone = SeverityAttention
		}
		facts = append(facts, f)
	}
	if l.hasRoles() {
		facts = append(facts, instancesFact(v.Instances))
	}
	facts = append(facts, l.gateFact(v))
	total := Fact{Name: "total", Value: textutil.BriefDuration(max(v.End, v.Last))}
	switch {
	case l.isAlive:
		total.Name = "so far"
	case v.End == 0:
		total.Name, total.Note = "until the last activity", "no end was recorded"
	}
	facts = append(append(facts, total), l.progressFacts()...)
	if restarts := len(l.rankRestarts()); restarts > 0 {
		facts = append(facts, Fact{Name: "restarts", Value: fmt.Sprint(restarts), Note: "of the ranks, in this run"})
	}
	started := Fact{Name: "started", Value: v.Begin.Format(time.TimeOnly), Note: v.Begin.Format("2006-01-02 MST")}
	return append(facts, started)
}

// rankRestarts returns when the ranks have been started again within the run.
func (l viewBuilder) rankRestarts() []time.Time {
	if l.run.Result == nil || l.run.Result.History == nil {
		return nil
	}
	isBefore := func(at time.Time) bool { return !at.After(l.run.Control.Job.At) }
	return slices.DeleteFunc(slices.Clone(l.run.Result.History.Times), isBefore)
}

func instancesFact(instances []InstanceRow) Fact {
	ready := countMatching(instances, func(row InstanceRow) bool { return row.Ready > 0 })
	f := Fact{Name: "instances ready", Tone: SeverityGood}
	f.Value = textutil.GroupThousands(ready) + " / " + textutil.GroupThousands(len(instances))
	if ready != len(instances) {
		f.Tone = SeverityAttention
	}
	return f
}

// name names what was waited for: the instance, or the phase of the node.
func (s CriticalStep) name() string {
	on := cmp.Or(s.Host, fmt.Sprint("node ", s.NodeIndex))
	switch {
	case s.Instance != "":
		return fmt.Sprintf("%s on %s", s.Instance, on)
	case s.Phase == phaseGate:
		return "the opening of the gate"
	default:
		return fmt.Sprintf("%s of %s", s.Phase, on)
	}
}

func (l viewBuilder) gateFact(v *View) Fact {
	gate := Fact{Name: "start to gate", Value: "not opened"}
	if v.Gate == 0 {
		return gate
	}
	gate.Value = textutil.BriefDuration(cmp.Or(l.status.ToGate, v.Gate)) // one figure, whatever the clocks
	var worst CriticalStep
	for _, step := range v.Critical {
		if step.Phase != phaseDriver && step.Took() > worst.Took() {
			worst = step
		}
	}
	if worst.Phase != "" {
		gate.Note = "longest wait: " + worst.name()
	}
	return gate
}

// progressFacts returns the goodput of the program, the steps that restarts have lost, and its
// slowest rank. It returns none if the program reports no steps.
func (l viewBuilder) progressFacts() []Fact {
	p := l.run.Progress()
	if p == nil {
		return nil
	}
	step := Fact{Name: "step", Value: progress.FormatStep(p.Step)}
	if p.Rate > 0 {
		step.Note = progress.FormatRate(p.Rate)
	}
	facts := []Fact{step, {
		Name: "goodput", Value: progress.FormatGoodput(p.Goodput),
		Note: "of " + textutil.BriefDuration(p.Elapsed) + ": time in which the step advanced beyond its maximum before",
	}}
	if lost := progress.DescribeLost(*p); lost != "" {
		facts = append(facts, Fact{Name: "lost", Value: lost})
	}
	if slow := p.Slowest; slow != nil {
		who := progress.NameSlowest(*slow, nodeName(slow.NodeIndex, l.hostName(slow.NodeIndex)))
		step, median := progress.FormatStep(slow.Step), progress.FormatStep(slow.Median)
		fact := Fact{
			Name: "slowest", Value: who, Note: fmt.Sprintf("step %s, the median of %d is %s", step, slow.Count, median),
		}
		if progress.IsStraggler(*p) {
			fact.Tone = SeverityAttention
		}
		facts = append(facts, fact)
	}
	return facts
}
