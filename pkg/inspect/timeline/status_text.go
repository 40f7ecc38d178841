package timeline

import (
	_ "embed" // embeds status.tmpl
	"fmt"
	"strings"
	"sync"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Style is the format in which a status is shown to people.
type Style struct {
	Colour bool
	// Width is the maximum line length in characters; 0 means unlimited.
	Width int
}

// colours maps states and marks to ANSI colours. The text is complete without them.
var colours = map[string]string{
	string(BringingUp): "36", string(IsUp): "32", string(Finished): "32", string(Ending): "33", string(HasFailed): "1;31",
	markLost: "1;31", markLeft: "31", markWaits: "36", markBefallen: "33", markDropped: "33", markSlow: "33",
}

// paint returns the text in the colour of a state or mark, if colours are enabled.
func (s Style) paint(word, text string) string {
	if colour := colours[word]; s.Colour && colour != "" {
		return "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
	return text
}

// Text formats the status for people. The first line has the most important facts.
func (s Status) Text(style Style) string { return strings.Join(s.lines(style), "\n") + "\n" }

//go:embed status.tmpl
var statusText string

// statusTemplate parses the template when a status is first shown, because work at program start
// would slow down every command.
var statusTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("status").Funcs(template.FuncMap{
		"clock": clock, "span": span, "seconds": func(d time.Duration) string { return span(d.Truncate(time.Second)) },
		"cut": func(nodes string) string { return textutil.TruncateText(nodes, mostNodesShown) },
	}).Parse(statusText))
})

const (
	// mostProblemsShown is the maximum number of problems that are shown.
	mostProblemsShown = 5
	// mostNodesShown is the maximum length in characters of a list of nodes.
	mostNodesShown = 60
)

// sheet is a status with the additional data for its text.
type sheet struct {
	Status
	Word       string        // the state in capital letters
	Since      time.Duration // time since the gate opened
	Table      []string      // lines of the histogram and of the nodes
	Unread     []string      // the first problems
	MoreUnread int
}

// lines returns the lines of the text, cut to the width of the terminal.
func (s Status) lines(style Style) []string {
	shown := s.Abnormal
	if s.All != nil {
		shown = s.All
	}
	unread := min(len(s.Problems), mostProblemsShown)
	of := sheet{
		Status: s, Word: strings.ToUpper(strings.ReplaceAll(string(s.State), "-", " ")), Since: max(0, s.Elapsed-s.ToGate),
		Table: append(histogram(s.Steps), style.table(shown)...), Unread: s.Problems[:unread], MoreUnread: len(s.Problems) - unread,
	}
	var text strings.Builder
	if err := statusTemplate().Execute(&text, of); err != nil {
		return []string{"cannot tell of the run: " + err.Error()} // an error in the template
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i, line := range lines {
		// Coloured lines are cut already. Commands must stay complete, because users copy them.
		if !strings.Contains(line, "\x1b") && !strings.HasPrefix(line, "  do: ") {
			lines[i] = style.fit(line)
		}
	}
	lines[0] = style.paint(string(s.State), of.Word) + strings.TrimPrefix(lines[0], of.Word)
	return lines
}

// fit cuts a line to the width of the terminal.
func (s Style) fit(line string) string {
	if s.Width > 0 {
		return textutil.TruncateText(line, s.Width)
	}
	return line
}

// histogramHead is the beginning of the first line of the histogram.
const histogramHead = "  phase  "

// histogram returns two lines that show how many nodes are at each step.
func histogram(steps []StepCount) []string {
	var head, counts strings.Builder
	for _, step := range steps {
		width := max(len(step.Step), len(fmt.Sprint(step.Nodes)))
		fmt.Fprintf(&head, "  %*s", width, step.Step)
		fmt.Fprintf(&counts, "  %*d", width, step.Nodes)
	}
	return []string{"  phase" + head.String(), "  nodes" + counts.String()}
}

// signs maps the marks to the symbols before the nodes, which allow a quick scan of the table.
var signs = map[string]string{markFailed: "✗", markLost: "✗", markLeft: "!", markWaits: "…", markBefallen: "!", markDropped: "-", markSlow: "~", markOK: "✓"}

// mostHost is the maximum length in characters of a host name in the table.
const mostHost = 40

// table returns one line per node.
func (s Style) table(nodes []NodeStatus) []string {
	var hosts, steps, ranks int
	for _, n := range nodes {
		ranks, hosts = max(ranks, len(fmt.Sprint(n.Rank))), max(hosts, utf8.RuneCountInString(textutil.TruncateText(n.Host, mostHost)))
		steps = max(steps, len(n.Step))
	}
	var lines []string
	for _, n := range nodes {
		how := n.Mark
		if n.For > 0 {
			how += " " + clock(n.For)
		}
		plain := fmt.Sprintf("  %s rank %-*d  %-*s  %-*s  %-15s  %s", signs[n.Mark], ranks, n.Rank, hosts, textutil.TruncateText(n.Host, mostHost), steps, n.Step, how, n.What)
		plain = strings.TrimRight(s.fit(plain), " ")
		lines = append(lines, s.mark(plain, n.Mark))
	}
	return lines
}

// mark colours the symbol of a node's line, unless the line was cut before it.
func (s Style) mark(line, mark string) string {
	if sign := signs[mark]; s.Colour {
		line = strings.Replace(line, "  "+sign, "  "+s.paint(mark, sign), 1)
	}
	return line
}

// clock formats a duration like a clock: 00:42, 1:02:03.
func clock(d time.Duration) string {
	seconds := int64(d / time.Second)
	if seconds < 3600 {
		return fmt.Sprintf("%02d:%02d", seconds/60, seconds%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
}

// Still returns the status without the fields that change merely because time passes.
func (s Status) Still() Status {
	s.At, s.Elapsed, s.Unchanged, s.LastSign, s.Deadline = time.Time{}, 0, 0, nil, nil
	s.Abnormal, s.All = still(s.Abnormal), still(s.All)
	return s
}

// still returns the nodes without the times for which they have been waited for.
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

// Changes returns the lines that differ from the lines shown before. It updates the set of shown
// lines. Lines that differ only because time has passed are not returned.
func (s Status) Changes(style Style, shown map[string]bool) (changed []string) {
	// A line is identified by its text without times and colours.
	keys := s.Still().lines(Style{})
	lines := s.lines(style)
	now := make(map[string]bool)
	for i, key := range keys {
		if i+1 < len(keys) && strings.HasPrefix(key, histogramHead) {
			key += keys[i+1] // repeat the header if the counts below it change
		}
		key = strings.Join(strings.Fields(key), " ") // column widths may change
		if i < len(lines) && !shown[key] {
			changed = append(changed, lines[i])
		}
		now[key] = true
	}
	// Remember the present lines only: a line that disappears and comes back is shown again.
	clear(shown)
	for key := range now {
		shown[key] = true
	}
	return changed
}
