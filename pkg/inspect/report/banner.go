package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// mostChain is the maximum number of consequences in the chain.
const mostChain = 12

// banner returns the verdict on the run, or its present state if there is no verdict yet.
func (l looking) banner(v *View) Banner {
	verdict := l.run.Verdict()
	b := Banner{Tone: Mind, Word: "Unfinished"}
	switch {
	case l.run.Result != nil, len(l.run.Control.Aborts) > 0:
		return l.ended(v, verdict)
	case verdict != nil:
		b.Title = words(verdict.Reason) + ": the run was being ended, and has left no result"
		b.setCode(verdict.Code, "")
	case hidden(l.run):
		b.Title = "the run has ended, but its result can't be read: the directory is cut off"
	case !l.alive:
		b.Title = "the run has left no result, and its daemons give no sign"
	default:
		b = Banner{Tone: Idle, Word: "Running", Title: l.goesOn(v)}
	}
	return l.unfinished(b, v)
}

// setCode sets the exit code, its short name and its meaning.
func (b *Banner) setCode(code int, word string) {
	b.Code, b.Outcome = &code, clean(word, 40)
	b.Meaning = meaning(code, word)
}

// meaning describes an exit code. The descriptions are those of the table of outcomes in package
// health.
func meaning(code int, word string) string {
	if word == health.DriverOutcomeName || word == "" && code < 64 {
		return "the driver's own code"
	}
	if word == health.RankOutcome.Name {
		return "the rank's own code"
	}
	for _, o := range health.OutcomeTable() {
		if o.Code == code && (word == "" || word == o.Name) {
			return fmt.Sprintf("%s; another try: %s", o.Meaning, o.Requeue)
		}
	}
	return ""
}

// ended returns the banner of a run whose end is recorded: in its result or, without one, in an
// abort record.
func (l looking) ended(v *View, r *signal.Result) Banner {
	b := Banner{Tone: Bad, Word: "Failed", Title: words(r.Reason), Advice: allWords(r.Advice), Bad: allWords(r.BadNodes)}
	b.setCode(r.Code, r.Outcome)
	switch {
	// Without a result, use the failures that the nodes have recorded.
	case l.run.Result == nil:
		r.Consequences, b.Advice = l.others(*r.Cause), l.advise(v)
	case r.Code == 0:
		b.Tone, b.Word = Good, "Ended well"
	case r.Cause == nil && r.Outcome == health.DriverOutcomeName:
		b.Word = "The driver failed"
	}
	// Add the chain of failures, and the notes.
	b.chain(l, r.Cause, r.Consequences)
	b.Events = mapped(r.Events, func(e signal.EventRecord) string { return nameOf(e.Rank, clean(e.Host, 80)) + ": " + befell(e) })
	b.Notes = mapped(r.Dropped, func(d signal.DroppedNode) string {
		return fmt.Sprintf("done without %s: %s", nameOf(d.Rank, clean(d.Host, 80)), words(d.Reason))
	})
	if r.Requeue != nil {
		b.Notes = append(b.Notes, map[bool]string{true: "to be tried again: ", false: "not tried again: "}[r.Requeue.Wanted]+words(r.Requeue.Reason))
	}
	// If nothing else failed, show the last log lines of the driver.
	at := slices.IndexFunc(v.Logs, func(log Log) bool { return log.Name == "driver.log" })
	if r.Code != 0 && len(b.Chain) == 0 && at >= 0 {
		log := v.Logs[at]
		b.Chain = []Link{{
			First: true, Host: l.host(0), Kind: health.DriverOutcomeName, Phase: "driver", What: b.Title,
			At: v.End, Log: log.Name, Lines: log.Lines[max(0, len(log.Lines)-20):],
		}}
	}
	return b
}

// chain sets the first cause and its consequences, in the order of the verdict.
func (b *Banner) chain(l looking, cause *signal.FailureRecord, consequences []signal.FailureRecord) {
	if cause == nil {
		return
	}
	shown := min(len(consequences), mostChain)
	b.Chain, b.More = mapped(append([]signal.FailureRecord{*cause}, consequences[:shown]...), l.link), len(consequences)-shown
	b.Chain[0].First = true
}

// others returns the failures that nodes have recorded, except the cause.
func (l looking) others(cause signal.FailureRecord) (rest []signal.FailureRecord) {
	for i := range l.run.Nodes {
		for _, f := range l.run.Nodes[i].Failures {
			if f.Rank != cause.Rank || f.Message != cause.Message {
				rest = append(rest, f)
			}
		}
	}
	return rest
}

// unfinished completes the banner of a run without a recorded end.
func (l looking) unfinished(b Banner, v *View) Banner {
	if b.Tone != Idle {
		if !v.Begin.IsZero() {
			b.Notes = append(b.Notes, fmt.Sprintf("the last sign of any node came %s before this page was made; it was: %s", textutil.BriefDuration(l.quiet), l.goesOn(v)))
		}
		b.Notes = append(b.Notes, "the page shows what is there: the daemons may have been killed, or the directory cut off or copied while they ran")
		b.Advice = l.advise(v)
	}
	// If nodes have recorded failures, the first one is the title.
	failures := l.others(signal.FailureRecord{Header: signal.Header{Rank: -1}})
	slices.SortStableFunc(failures, func(a, c signal.FailureRecord) int { return a.WrittenAt.Compare(c.WrittenAt) })
	if len(failures) > 0 {
		b.Tone, b.Title = Bad, words(failures[0].Message)
		b.chain(l, &failures[0], failures[1:])
	}
	return b
}

// goesOn describes how far a run without a recorded end has come.
func (l looking) goesOn(v *View) string {
	goal, n := l.goal(), 0
	if v.Gate > 0 {
		return fmt.Sprintf("the gate was opened after %s; the driver runs on %s", textutil.BriefDuration(v.Gate), plural(v.Size, "node"))
	}
	if goal < 0 {
		return fmt.Sprintf("none of %s has joined", plural(v.Size, "node"))
	}
	// Count the nodes that have reached the most advanced state, and name the others.
	var missing []string
	for i := range l.run.Nodes {
		if reached, _ := l.reached(&l.run.Nodes[i]); reached == goal {
			n++
		} else {
			missing = append(missing, cmp.Or(l.host(i), fmt.Sprintf("rank %d", i)))
		}
	}
	said := fmt.Sprintf("%d of %s %s", n, plural(v.Size, "node"), goals[goal])
	// The list of missing nodes is cut.
	const most = 8
	if more := len(missing) - most; more > 0 {
		missing = append(missing[:most], fmt.Sprintf("%d more", more))
	}
	if len(missing) > 0 {
		said += "; missing: " + strings.Join(missing, ", ")
	}
	return said
}

// advise returns the advice for a run that has left no result.
func (l looking) advise(v *View) (advice []string) {
	if len(v.Logs) > 0 {
		advice = append(advice, "read the ends of the logs below, the head's first")
	}
	return append(advice, "ask the launcher how the job ended (sacct -j JOB), for nobody here was left to write it down")
}

// facts returns the key figures at the top of the report.
func (l looking) facts(v *View) (facts []Fact) {
	// Nodes that are ready, or the most advanced state if the gate has not opened.
	ready := count(v.Nodes, func(n Node) bool { return n.Ready > 0 })
	f := Fact{Name: "nodes ready", Value: fmt.Sprintf("%s / %s", textutil.GroupThousands(ready), textutil.GroupThousands(v.Size)), Tone: Good}
	if ready < v.Size {
		f.Tone = Mind
	}
	if goal := l.goal(); goal >= 0 {
		f.Note = "“" + goals[goal] + "” is what they came to"
		if v.Gate == 0 {
			f = Fact{Name: "nodes " + goals[goal], Value: f.Value, Note: "no node came further", Tone: Mind}
		}
	}
	facts = append(facts, f)
	// Time until the gate opened, and the longest step of it.
	gate := Fact{Name: "start to gate", Value: "not opened"}
	if v.Gate > 0 {
		gate.Value = textutil.BriefDuration(v.Gate)
		if worst, ok := longest(v.Critical); ok {
			gate.Note = fmt.Sprintf("longest wait: %s of %s", worst.Phase, cmp.Or(worst.Host, fmt.Sprint("rank ", worst.Rank)))
		}
	}
	facts = append(facts, gate)
	// Duration of the run, as far as it is known.
	all := Fact{Name: "in all", Value: textutil.BriefDuration(max(v.End, v.Last))}
	switch {
	case l.alive:
		all.Name = "so far"
	case v.End == 0:
		all = Fact{Name: "until the last sign", Value: textutil.BriefDuration(v.Last), Note: "no end was written"}
	}
	facts = append(facts, all)
	slow := count(v.Nodes, func(n Node) bool { return len(n.Slow) > 0 })
	return append(facts, Fact{Name: "stragglers", Value: textutil.GroupThousands(slow), Note: "above twice the median"},
		Fact{Name: "began", Value: v.Begin.Format("15:04:05"), Note: v.Begin.Format("2006-01-02 MST")})
}

// longest returns the longest step before the gate.
func longest(steps []Step) (worst Step, ok bool) {
	for _, s := range steps {
		if s.Phase != "driver" && s.Took() > worst.Took() {
			worst, ok = s, true
		}
	}
	return worst, ok
}
