package timeline

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Style is how a status is shown to people.
type Style struct {
	Colour bool
	// Width cuts lines, where it is not 0.
	Width int
}

// colours are those of ANSI terminals; the words say it all without them.
var colours = map[string]string{
	string(BringingUp): "36", string(IsUp): "32", string(Finished): "32", string(Ending): "33", string(HasFailed): "1;31",
	markLost: "1;31", markLeft: "31", markWaits: "36", markBefallen: "33", markDropped: "33", markSlow: "33",
}

// paint gives text the colour of a word.
func (s Style) paint(word, text string) string {
	if colour := colours[word]; s.Colour && colour != "" {
		return "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
	return text
}

// Text is the status for people: the first line tells the most.
func (s Status) Text(style Style) string {
	var b strings.Builder
	for _, line := range s.lines(style) {
		b.WriteString(line + "\n")
	}
	return b.String()
}

func (s Status) lines(style Style) []string {
	lines := []string{style.verdict(s)}
	add := func(more ...string) { lines = append(lines, more...) }
	if s.Silent {
		add(style.fit("  " + s.silence()))
	}
	if s.End != nil {
		add(style.end(s)...)
	}
	add(style.histogram(s.Steps)...)
	shown := s.Abnormal
	if s.All != nil {
		shown = s.All
	}
	add(style.table(shown)...)
	if s.More > 0 && s.All == nil {
		add(fmt.Sprintf("  +%d more (-v shows all)", s.More))
	}
	for _, problem := range s.Problems[:min(len(s.Problems), mostProblemsShown)] {
		add(style.fit("  not shown: " + problem))
	}
	if more := len(s.Problems) - mostProblemsShown; more > 0 {
		add(fmt.Sprintf("  not shown: %d more things (--json has them)", more))
	}
	if !s.Over() {
		add(style.fit("  next: " + s.nextLine()))
	}
	return lines
}

// mostProblemsShown is how many sentences on what can't be read there are.
const mostProblemsShown = 5

// fit cuts a line to the width of the terminal.
func (s Style) fit(line string) string {
	if s.Width > 0 && utf8.RuneCountInString(line) > s.Width {
		return string([]rune(line)[:s.Width-1]) + "…"
	}
	return line
}

// verdict is the first line.
func (s Style) verdict(of Status) string {
	word := strings.ToUpper(strings.ReplaceAll(string(of.State), "-", " "))
	line := s.fit(word + "  " + of.Run + "  " + of.summary())
	return s.paint(string(of.State), word) + strings.TrimPrefix(line, word)
}

// summary is what the first line tells behind the run's name.
func (s Status) summary() string {
	ready := fmt.Sprintf("%d/%d ready", s.Ready, s.Nodes)
	if s.Need < s.Nodes {
		ready = fmt.Sprintf("%d ready of %d, %d needed", s.Ready, s.Nodes, s.Need)
	}
	switch s.State {
	case BringingUp:
		return fmt.Sprintf("%s: %s after %s: %s", s.Phase, ready, clock(s.Elapsed), s.waitsFor())
	case IsUp:
		line := fmt.Sprintf("%s, for %s", ready, clock(max(0, s.Elapsed-s.ToGate)))
		if s.ToGate > 0 {
			line += ", the gate opened after " + span(s.ToGate)
		}
		if s.Driver != "" {
			line += ": the driver " + s.Driver + " runs"
		}
		return line
	case Ending:
		return fmt.Sprintf("after %s: %s", clock(s.Elapsed), s.End.headline())
	default:
		return s.End.headline() + s.took()
	}
}

func (s Status) took() string {
	if s.End == nil || s.End.Took <= 0 {
		return ""
	}
	took := "; took " + span(s.End.Took)
	if s.ToGate > 0 {
		took += ", " + span(s.ToGate) + " of it to the gate"
	}
	return took
}

// headline is how a run ends, in a few words.
func (e *End) headline() string {
	if e == nil {
		return "its result can't be read"
	}
	line := fmt.Sprintf("code %d", e.Code)
	if e.Word != "" {
		line += " (" + e.Word + ")"
	}
	if e.Why != "" && e.Cause == "" {
		line += ": " + e.Why
	}
	return line
}

// waitsFor is what is waited for, in a few words.
func (s Status) waitsFor() string {
	var nodes, others []string
	for _, wait := range s.Waits {
		if len(wait.Ranks) > 0 {
			nodes = append(nodes, fmt.Sprintf("%s (%s)", prose.Cut(wait.Nodes, mostNodesShown), wait.Step))
		} else {
			others = append(others, wait.What)
		}
	}
	switch {
	case len(nodes) > 0:
		return "waiting for " + strings.Join(append(nodes, others...), ", ")
	case len(others) > 0:
		return strings.Join(others, ", ")
	default:
		return s.Next
	}
}

// mostNodesShown bounds in characters a list of nodes.
const mostNodesShown = 60

// silence tells that there was no sign of life for long.
func (s Status) silence() string {
	const gone = "the daemons may be gone"
	if s.Unchanged >= s.SilentAfter || s.LastSign == nil {
		return fmt.Sprintf("nothing has changed for %s: %s", span(s.Unchanged.Truncate(time.Second)), gone)
	}
	return fmt.Sprintf("last sign of life at %s, %s ago by this machine's clock: %s (-w looks whether anything changes)",
		s.LastSign.Local().Format(time.DateTime), span(s.At.Sub(*s.LastSign).Truncate(time.Second)), gone)
}

// end is the first cause, and what to do.
func (s Style) end(of Status) []string {
	var lines []string
	e := of.End
	if e.Cause != "" {
		lines = append(lines, s.fit("  first cause: "+e.Cause))
	}
	if e.Rank != nil {
		where := fmt.Sprintf("rank %d of %d", *e.Rank, of.Nodes)
		if e.Host != "" {
			where = e.Host + ", " + where
		}
		if e.Phase != "" {
			where += ", in phase " + e.Phase
		}
		if e.LostOn != "" {
			lines = append(lines, s.fit("  lost: "+prose.Cut(e.LostOn, mostNodesShown)))
		}
		lines = append(lines, s.fit("  seen by: "+where))
	}
	if e.Log != "" {
		lines = append(lines, s.fit("  its log: "+of.Path+"/logs/"+e.Log))
	}
	for _, line := range e.Lines {
		lines = append(lines, s.fit("  | "+line))
	}
	if e.Others > 0 {
		lines = append(lines, fmt.Sprintf("  failed of it: %d more (result.json has them)", e.Others))
	}
	for _, step := range e.Advice {
		lines = append(lines, "  do: "+step) // a command is to be copied whole
	}
	return lines
}

// histogramHead begins the first line of the histogram.
const histogramHead = "  phase  "

// histogram is where the nodes are.
func (s Style) histogram(steps []StepCount) []string {
	var head, counts strings.Builder
	for _, step := range steps {
		width := max(len(step.Step), len(fmt.Sprint(step.Nodes)))
		fmt.Fprintf(&head, "  %*s", width, step.Step)
		fmt.Fprintf(&counts, "  %*d", width, step.Nodes)
	}
	return []string{s.fit("  phase" + head.String()), s.fit("  nodes" + counts.String())}
}

// signs stand before a node, for who looks at the shape of it.
var signs = map[string]string{markFailed: "✗", markLost: "✗", markLeft: "!", markWaits: "…", markBefallen: "!", markDropped: "-", markSlow: "~", markOK: "✓"}

// mostHost bounds in characters a host's name in the table.
const mostHost = 40

// table has a line a node.
func (s Style) table(nodes []NodeStatus) []string {
	var hosts, steps, ranks int
	for _, n := range nodes {
		ranks, hosts = max(ranks, len(fmt.Sprint(n.Rank))), max(hosts, utf8.RuneCountInString(prose.Cut(n.Host, mostHost)))
		steps = max(steps, len(n.Step))
	}
	var lines []string
	for _, n := range nodes {
		how := n.Mark
		if n.For > 0 {
			how += " " + clock(n.For)
		}
		plain := fmt.Sprintf("  %s rank %-*d  %-*s  %-*s  %-15s  %s", signs[n.Mark], ranks, n.Rank, hosts, prose.Cut(n.Host, mostHost), steps, n.Step, how, n.What)
		plain = strings.TrimRight(s.fit(plain), " ")
		lines = append(lines, s.mark(plain, n.Mark))
	}
	return lines
}

// mark colours a node's sign and the word for it, where it is on the line yet.
func (s Style) mark(line, mark string) string {
	if sign := signs[mark]; s.Colour {
		line = strings.Replace(line, "  "+sign, "  "+s.paint(mark, sign), 1)
	}
	return line
}

func (s Status) nextLine() string {
	if s.Deadline == nil {
		return s.Next
	}
	left := s.Deadline.Sub(s.At)
	if left < 0 {
		return fmt.Sprintf("%s: that was %s ago", s.Next, clock(-left))
	}
	return fmt.Sprintf("%s: in %s", s.Next, clock(left))
}

// clock is a time as clocks show it: 00:42, 1:02:03.
func clock(d time.Duration) string {
	seconds := int64(d / time.Second)
	if seconds < 3600 {
		return fmt.Sprintf("%02d:%02d", seconds/60, seconds%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
}

// Still is the status without what changes with time alone.
func (s Status) Still() Status {
	s.At, s.Elapsed, s.Unchanged, s.LastSign, s.Deadline = time.Time{}, 0, 0, nil, nil
	s.Abnormal, s.All = still(s.Abnormal), still(s.All)
	return s
}

func still(nodes []NodeStatus) []NodeStatus {
	var all []NodeStatus
	for _, n := range nodes {
		if n.Mark == markWaits {
			n.For = 0
		}
		all = append(all, n)
	}
	return all
}

// Changes returns the lines that say something else than those shown before,
// which it is given and brings up to date. That time goes by is no news.
func (s Status) Changes(style Style, shown map[string]bool) (changed []string) {
	keys := s.Still().lines(Style{})
	lines := s.lines(style)
	now := make(map[string]bool)
	for i, key := range keys {
		if i+1 < len(keys) && strings.HasPrefix(key, histogramHead) {
			key += keys[i+1] // numbers alone say nothing
		}
		key = strings.Join(strings.Fields(key), " ") // columns may become wider
		if i < len(lines) && !shown[key] {
			changed = append(changed, lines[i])
		}
		now[key] = true
	}
	clear(shown)
	for key := range now {
		shown[key] = true
	}
	return changed
}
