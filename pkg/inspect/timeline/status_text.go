package timeline

import (
	_ "embed" // the text's template
	"fmt"
	"strings"
	"sync"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/bringupd/bringupd/internal/textutil"
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
func (s Status) Text(style Style) string { return strings.Join(s.lines(style), "\n") + "\n" }

//go:embed status.tmpl
var statusText string

// statusTemplate is parsed by who shows a status: every command pays for what the
// program does at its start.
var statusTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("status").Funcs(template.FuncMap{
		"clock": clock, "span": span, "seconds": func(d time.Duration) string { return span(d.Truncate(time.Second)) },
		"cut": func(nodes string) string { return textutil.TruncateText(nodes, mostNodesShown) },
	}).Parse(statusText))
})

const (
	// mostProblemsShown is how many sentences on what can't be read there are.
	mostProblemsShown = 5
	// mostNodesShown bounds in characters a list of nodes.
	mostNodesShown = 60
)

// sheet is a status with what only its text needs.
type sheet struct {
	Status
	Word       string        // for the state
	Since      time.Duration // the gate opened
	Table      []string      // lines of the histogram and of the nodes
	Unread     []string      // the first of the problems
	MoreUnread int
}

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
		return []string{"cannot tell of the run: " + err.Error()} // the template is wrong
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	for i, line := range lines {
		// What is painted is cut already, and a command is to be copied whole.
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

// histogramHead begins the first line of the histogram.
const histogramHead = "  phase  "

// histogram is where the nodes are.
func histogram(steps []StepCount) []string {
	var head, counts strings.Builder
	for _, step := range steps {
		width := max(len(step.Step), len(fmt.Sprint(step.Nodes)))
		fmt.Fprintf(&head, "  %*s", width, step.Step)
		fmt.Fprintf(&counts, "  %*d", width, step.Nodes)
	}
	return []string{"  phase" + head.String(), "  nodes" + counts.String()}
}

// signs stand before a node, for who looks at the shape of it.
var signs = map[string]string{markFailed: "✗", markLost: "✗", markLeft: "!", markWaits: "…", markBefallen: "!", markDropped: "-", markSlow: "~", markOK: "✓"}

// mostHost bounds in characters a host's name in the table.
const mostHost = 40

// table has a line a node.
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

// mark colours a node's sign and the word for it, where it is on the line yet.
func (s Style) mark(line, mark string) string {
	if sign := signs[mark]; s.Colour {
		line = strings.Replace(line, "  "+sign, "  "+s.paint(mark, sign), 1)
	}
	return line
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
