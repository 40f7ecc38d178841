package timeline

import (
	"cmp"
	_ "embed" // embeds status.tmpl
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/bringupd/bringupd/internal/textutil"
)

// TextStyle is the format in which a status is shown to people.
type TextStyle struct {
	Colour bool
	// Width is the maximum line length in characters; 0 means unlimited.
	Width int
}

// markSymbols has the symbols before the nodes, which allow a quick scan of the table, and ansiColours
// their colours, and those of states. The text is complete without them.
var (
	markSymbols = map[string]string{
		markFailed: "✗", markLost: "✗", markLeftover: "!", markWaiting: "…", markEvent: "!", markDropped: "-",
		markOK: "✓",
	}
	ansiColours = map[string]string{
		string(StateBringingUp): "36", string(StateUp): "32", string(StateFinished): "32", string(StateEnding): "33",
		string(StateFailed): "1;31", markLost: "1;31", markLeftover: "31", markWaiting: "36", markEvent: "33",
		markDropped: "33",
	}
)

// markWords are the words for marks in the text, where they differ.
var markWords = map[string]string{markEvent: "warning"}

// applyColour returns the text in the colour of a state or mark, if colours are enabled.
func (s TextStyle) applyColour(word, text string) string {
	if colour := ansiColours[word]; s.Colour && colour != "" {
		return "\x1b[" + colour + "m" + text + "\x1b[0m"
	}
	return text
}

//go:embed status.tmpl
var statusTemplateText string

// parsedStatusTemplate parses the template when a status is first shown, because work at program
// start would slow down every command.
var parsedStatusTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("status").Funcs(template.FuncMap{
		"clock": formatClock, "span": formatDuration,
		"seconds": func(d time.Duration) string { return formatDuration(d.Truncate(time.Second)) },
		"cut":     func(nodes string) string { return textutil.TruncateText(nodes, maxNodeListLength) },
	}).Parse(statusTemplateText))
})

const (
	// maxProblemsShown is the maximum number of problems that are shown.
	maxProblemsShown = 5
	// maxNodeListLength is the maximum length in characters of a list of nodes.
	maxNodeListLength = 60
)

type statusTemplateData struct {
	Status
	Word   string        // the state in capital letters
	Since  time.Duration // time since the gate opened
	Table  []string      // lines of the histogram and of the nodes
	Unread []string      // the first problems, and the number of the others
}

// AttemptLine describes the place of the run among the attempts of its job, and how the one before it
// ended. It is empty if there is only one.
func (s statusTemplateData) AttemptLine() string {
	line := AttemptText(s.Attempts)
	own := slices.IndexFunc(s.Attempts, func(a Attempt) bool { return a.IsThis })
	if own > 0 {
		line += fmt.Sprintf("; %s %s", s.Attempts[own-1].Run, s.Attempts[own-1].Ended())
	}
	return line
}

// ShowsNext reports whether something follows: before the end always.
func (s statusTemplateData) ShowsNext() bool {
	return s.Next != "" && (!s.Over() || s.NextAttempt > 0 || s.Requeued)
}

// RoleLines returns the lines about the roles; after the end only about those that need attention.
func (s statusTemplateData) RoleLines() []string {
	shown := slices.Clone(s.Roles)
	if s.Over() {
		shown = slices.DeleteFunc(shown, func(r RoleStatus) bool { return r.Lost+r.Restarts+len(r.Waits) == 0 })
	}
	return RoleLines(shown)
}

// Invocation returns the name of the job and the command line of its daemons. It is empty if the run
// has not recorded them.
func (s statusTemplateData) Invocation() string {
	if s.Command == "" && len(s.Flags) == 0 {
		return s.JobName
	}
	line := "bringupd"
	if len(s.Flags) > 0 {
		line += " " + textutil.FormatCommand(s.Flags...)
	}
	if s.Command != "" {
		line += " -- " + s.Command
	}
	if s.JobName != "" {
		line = s.JobName + ": " + line
	}
	return textutil.SingleLine(line, maxTextLength)
}

// Summary describes the state of the run in one sentence, and in another one why only its result is
// known if its records have another version.
func (s Status) Summary() string {
	text := executeTemplate("summary", statusTemplateData{Status: s, Since: max(0, s.Elapsed-s.ToGate)})
	if s.OtherVersion && s.State != StateUnknown {
		text += "; " + strings.Join(s.Problems, "; ")
	}
	return text
}

func executeTemplate(name string, of statusTemplateData) string {
	var text strings.Builder
	if err := parsedStatusTemplate().ExecuteTemplate(&text, name, of); err != nil {
		return "cannot show the run: " + err.Error() // an error in the template
	}
	return text.String()
}

// Text formats the status for people. The first line has the most important facts. Lines are cut to
// the width of the terminal.
func (s Status) Text(style TextStyle) string {
	shown := s.Listed
	if s.All != nil {
		shown = s.All
	}
	unread := slices.Clone(s.Problems)
	if more := len(unread) - maxProblemsShown; more > 0 {
		unread = append(unread[:maxProblemsShown],
			fmt.Sprintf("%d more problems (see --json)", more))
	}
	if s.State == StateUnknown {
		unread = nil // the summary is the problem
	}
	of := statusTemplateData{
		Status: s, Since: max(0, s.Elapsed-s.ToGate), Unread: unread,
		Word:  strings.ToUpper(strings.ReplaceAll(string(s.State), "-", " ")),
		Table: append(formatHistogram(s.Steps), style.nodeLines(slices.Clone(shown))...),
	}
	lines := strings.Split(strings.TrimSuffix(executeTemplate("status", of), "\n"), "\n")
	for i, line := range lines {
		// Coloured lines are cut already. Commands must stay complete, because users copy them.
		if !strings.Contains(line, "\x1b") && !strings.HasPrefix(line, "  do: ") {
			lines[i] = style.cutLine(line)
		}
	}
	lines[0] = style.applyColour(string(s.State), of.Word) + strings.TrimPrefix(lines[0], of.Word)
	return strings.Join(lines, "\n") + "\n"
}

func (s TextStyle) cutLine(line string) string {
	if s.Width > 0 {
		return textutil.TruncateText(line, s.Width)
	}
	return line
}

// formatHistogram returns two lines that show how many nodes are at each step.
func formatHistogram(steps []StepCount) []string {
	if len(steps) == 0 {
		return nil // the records have another version
	}
	var head, counts strings.Builder
	for _, step := range steps {
		width := max(len(step.Step), len(fmt.Sprint(step.Nodes)))
		fmt.Fprintf(&head, "  %*s", width, step.Step)
		fmt.Fprintf(&counts, "  %*d", width, step.Nodes)
	}
	return []string{"  phase" + head.String(), "  nodes" + counts.String()}
}

// maxHostLength is the maximum length in characters of a host name in the table.
const maxHostLength = 40

func (s TextStyle) nodeLines(nodes []NodeStatus) (lines []string) {
	var hosts, steps, indices int
	for i, n := range nodes {
		nodes[i].Host = textutil.TruncateText(n.Host, maxHostLength)
		hosts = max(hosts, utf8.RuneCountInString(nodes[i].Host))
		indices, steps = max(indices, len(fmt.Sprint(n.NodeIndex))), max(steps, len(n.Step))
	}
	for _, n := range nodes {
		how, symbol := cmp.Or(markWords[n.Mark], n.Mark), markSymbols[n.Mark]
		if n.For > 0 {
			how += " " + formatClock(n.For)
		}
		line := fmt.Sprintf("  %s node %-*d  %-*s  %-*s  %-15s  %s",
			symbol, indices, n.NodeIndex, hosts, n.Host, steps, n.Step, how, n.What)
		line = strings.TrimRight(s.cutLine(line), " ")
		lines = append(lines, strings.Replace(line, "  "+symbol, "  "+s.applyColour(n.Mark, symbol), 1))
	}
	return lines
}

// formatClock formats a duration like a clock: 00:42, 1:02:03.
func formatClock(d time.Duration) string {
	seconds := int64(d / time.Second)
	if seconds < 3600 {
		return fmt.Sprintf("%02d:%02d", seconds/60, seconds%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
}

// WithoutTimes returns the status without the fields that change merely because time passes.
func (s Status) WithoutTimes() Status {
	s.At, s.Elapsed, s.Unchanged, s.LastSign, s.Deadline = time.Time{}, 0, 0, nil, nil
	s.Abnormal, s.All = withoutWaitTimes(s.Abnormal), withoutWaitTimes(s.All)
	s.Listed, s.Roles = withoutWaitTimes(s.Listed), withoutStartTimes(s.Roles)
	return s
}

func withoutStartTimes(all []RoleStatus) []RoleStatus {
	all = slices.Clone(all)
	for i := range all {
		all[i].Waits = slices.Clone(all[i].Waits)
		for j := range all[i].Waits {
			all[i].Waits[j].For = 0
		}
	}
	return all
}

func withoutWaitTimes(nodes []NodeStatus) []NodeStatus {
	all := slices.Clone(nodes)
	for i := range all {
		all[i].For = 0
	}
	return all
}

func formatDuration(d time.Duration) string {
	if d >= time.Hour {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return textutil.RoundedDuration(d, 10*time.Second)
}
