package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Format is how a report is written.
type Format string

// The formats.
const (
	HTML  Format = "html"
	JSON  Format = "json"
	Text  Format = "text"
	MD    Format = "md"
	Trace Format = "chrome-trace"
)

// Formats returns them all.
func Formats() []string {
	return []string{string(HTML), string(JSON), string(Text), string(MD), string(Trace)}
}

// Write writes the view in a format.
func (v *View) Write(w io.Writer, format Format) error {
	switch format {
	case JSON:
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(v)
	case Text:
		_, err := io.WriteString(w, v.asText())
		return err
	case MD:
		_, err := io.WriteString(w, v.asMarkdown())
		return err
	case Trace:
		return v.asTrace(w)
	default:
		return v.asPage(w)
	}
}

// list is lines of one kind: after a prefix each in a text, under a heading
// elsewhere.
type list struct {
	prefix, heading string
	lines           []string
}

func (v *View) lists() []list {
	return []list{
		{"next", "What to do", v.Banner.Advice},
		{"to stay away from", "Nodes to stay away from", v.Banner.Bad},
		{"note", "Notes", v.Banner.Notes},
		{"befell", "What befell nodes", v.Banner.Events},
		{"could not be read", "What could not be read", v.Problems},
	}
}

// table is a heading, rows of which the first one names the columns, and
// sentences on them.
type table struct {
	heading string
	rows    [][]string
	notes   []string
}

// grid is the rows of items under the names of their columns.
func grid[T any](columns []string, items []T, row func(T) []string) [][]string {
	rows := [][]string{columns}
	for _, item := range items {
		rows = append(rows, row(item))
	}
	return rows
}

// mostText is how many nodes have a line in a text.
const mostText = 16

// tables are those of a text; Markdown has no table of the share, and shorter
// headings.
func (v *View) tables(text bool) (all []table) {
	if c := v.Compared; c != nil {
		all = append(all,
			table{"Beside run " + c.Run, grid([]string{"phase", "median there", "here", "slowest there", "here", ""}, c.Phases, PhaseChange.cells), nil},
			table{"Nodes that got slower", grid([]string{"node", "phase", "there", "here", "slower by"}, c.Nodes, NodeChange.cells), c.Notes})
	}
	nodes := "Nodes"
	if text && v.Size > mostText {
		nodes = fmt.Sprintf("Nodes: the failed and the last to be ready, %d of %d", mostText, v.Size)
	}
	all = append(all,
		table{"Phases", grid([]string{"phase", "nodes", "median", "p90", "slowest", "on", ""}, v.Phases, PhaseStat.cells), nil},
		table{"Critical path", grid([]string{"phase", "waited for", "from", "took"}, v.Critical, Step.cells), nil},
		table{nodes, grid([]string{"rank", "host", "state", "ready after", "", ""}, v.Nodes[:min(len(v.Nodes), mostText)], Node.cells), nil},
		table{"Checks", v.checkRows(), nil})
	if share := v.Share; text && share != nil {
		all = append(all, table{"Calls into the share", grid([]string{"call", "head", "worker p50", "worker most", "all"}, share.Rows, ShareRow.cells), share.Notes})
	}
	return append(all, table{"Configuration", grid([]string{"what", "is"}, v.Config, func(f Fact) []string { return []string{f.Name, f.Value} }), nil})
}

func (v *View) asText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s (run %s)\n", v.Banner.Word, v.Banner.Title, v.Run)
	if v.Banner.Meaning != "" {
		fmt.Fprintf(&b, "  exit code %d: %s\n", *v.Banner.Code, v.Banner.Meaning)
	}
	for _, link := range v.Banner.Chain {
		fmt.Fprintf(&b, "  %s: %s\n", link.Cause(), link.sentence())
		listed(&b, "    | ", link.Lines)
	}
	if v.Banner.More > 0 {
		fmt.Fprintf(&b, "  and %d more consequences\n", v.Banner.More)
	}
	for _, l := range v.lists() {
		if l.prefix == "to stay away from" && len(l.lines) > 0 {
			l.lines = []string{strings.Join(l.lines, ", ")}
		}
		listed(&b, "  "+l.prefix+": ", l.lines)
	}
	b.WriteString("\n")
	for _, f := range v.Facts {
		fmt.Fprintf(&b, "  %s: %s", f.Name, f.Value)
		if f.Note != "" {
			fmt.Fprintf(&b, " (%s)", f.Note)
		}
		b.WriteString("\n")
	}
	for _, t := range v.tables(true) {
		t.aligned(&b)
	}
	for _, log := range v.shownLogs() {
		fmt.Fprintf(&b, "\nlogs/%s%s\n", log.Name, log.note())
		listed(&b, "  | ", log.Lines)
	}
	return b.String()
}

func listed(b *strings.Builder, prefix string, lines []string) {
	for _, line := range lines {
		b.WriteString(prefix + line + "\n")
	}
}

// aligned writes a table for a terminal; one without rows is none.
func (t table) aligned(b *strings.Builder) {
	if len(t.rows) > 1 {
		b.WriteString("\n" + t.heading + "\n")
		var aligned strings.Builder
		w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
		for _, row := range t.rows {
			_, _ = fmt.Fprintln(w, "  "+strings.Join(row, "\t")) // into memory
		}
		_ = w.Flush()
		for line := range strings.Lines(aligned.String()) {
			b.WriteString(strings.TrimRight(line, " \n") + "\n")
		}
	}
	listed(b, "  ", t.notes)
}

// Cause is how a link of the chain is called.
func (l Link) Cause() string {
	if l.First {
		return "first cause"
	}
	return "consequence"
}

func (l Link) sentence() string {
	said := nameOf(l.Rank, l.Host) + ": " + l.What
	if l.Phase != "" {
		said += " [" + l.Kind + ", phase " + l.Phase
		if l.By != "" {
			said += ", seen by " + l.By
		}
		if l.At > 0 {
			said += ", after " + prose.Brief(l.At)
		}
		said += "]"
	}
	return said
}

// importantLogs is how many of the logs are shown first, and alone in a text: the
// driver's, the head's and those of nodes to blame are the first of all.
const importantLogs = 6

func (v *View) shownLogs() []Log { return v.Logs[:min(len(v.Logs), importantLogs)] }

func (l Log) note() string {
	switch {
	case l.Error != "":
		return " (" + l.Error + ")"
	case l.Cut:
		return fmt.Sprintf(" (the end of %s bytes)", prose.Grouped(l.Size))
	case l.Size == 0:
		return " (empty)"
	default:
		return ""
	}
}

func (s PhaseStat) cells() []string {
	return []string{s.Phase, prose.Grouped(s.Nodes), prose.Brief(s.P50), prose.Brief(s.P90), prose.Brief(s.Max), nameOf(s.Rank, s.Host), s.Note()}
}

// Note says what is not as it should be with a phase.
func (s PhaseStat) Note() string {
	var parts []string
	if s.Failed > 0 {
		parts = append(parts, fmt.Sprintf("failed on %d", s.Failed))
	}
	if s.Open > 0 {
		parts = append(parts, fmt.Sprintf("no end on %d", s.Open))
	}
	return strings.Join(parts, ", ")
}

func (s Step) cells() []string {
	return []string{s.Phase, nameOf(s.Rank, s.Host), prose.Brief(s.From), prose.Brief(s.Took())}
}

func (n Node) cells() []string {
	ready, slow := "never", ""
	if n.Ready > 0 {
		ready = prose.Brief(n.Ready)
	}
	if len(n.Slow) > 0 {
		slow = "slow: " + strings.Join(n.Slow, ", ")
	}
	why := ""
	if len(n.Failures) > 0 {
		why = n.Failures[0].What
	}
	return []string{fmt.Sprint(n.Rank), n.Host, n.State, ready, slow, why}
}

func (v *View) checkRows() [][]string {
	rows := [][]string{{"verdict", "check", "on", "observed", "what to do"}}
	passed := 0
	for _, g := range v.Checks {
		if g.Tone == Good {
			passed++
			continue
		}
		rows = append(rows, []string{g.Verdict, g.ID, g.On, g.Observed, g.Hint})
	}
	if passed > 0 {
		rows = append(rows, []string{"PASS", fmt.Sprintf("%d others", passed), "", "", ""})
	}
	return rows
}

func (r ShareRow) cells() []string {
	return []string{r.Call, prose.Grouped(r.Head), prose.Grouped(r.WorkerP50), prose.Grouped(r.WorkerMost), prose.Grouped(r.All)}
}

func (p PhaseChange) cells() []string {
	return []string{p.Phase, prose.Brief(p.Was[0]), prose.Brief(p.Is[0]), prose.Brief(p.Was[1]), prose.Brief(p.Is[1]), p.Says}
}

func (c NodeChange) cells() []string {
	return []string{nameOf(c.Rank, c.Host), c.Phase, prose.Brief(c.Was), prose.Brief(c.Is), prose.Brief(c.By())}
}
