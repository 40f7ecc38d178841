package report

import (
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/trail"
)

// parts are the formats that people read: how they put what a View has is theirs.
//
//go:embed page.html page.css page.js text.tmpl markdown.tmpl
var parts embed.FS

// functions are those that the formats call.
var functions = template.FuncMap{
	"brief": prose.Brief, "name": nameOf, "grouped": prose.Grouped[int], "calls": prose.Grouped[int64], "plural": plural, "join": strings.Join,
	"class": class, "bringsUp": brings, "aligned": table.aligned, "marked": marking.Replace, "coded": coded, "fenced": fenced,
}

// written is a format of lines. It is parsed by who writes one: every command pays
// for what the program does at its start.
func written(name string) *template.Template {
	return template.Must(template.New(name).Funcs(functions).ParseFS(parts, name))
}

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
		return written("text.tmpl").Execute(w, v)
	case MD:
		return written("markdown.tmpl").Execute(w, v)
	case Trace:
		return v.asTrace(w)
	default:
		return v.asPage(w)
	}
}

// table has a heading, rows under the names of their columns, and sentences on them.
type table struct {
	Heading string
	Columns []string
	Rows    [][]string
	Notes   []string
}

// tableOf makes a table with a row an item; columns are the names, between bars.
func tableOf[T any](heading, columns string, items []T, row func(T) []string, notes ...string) table {
	return table{heading, strings.Split(columns, "|"), mapped(items, row), notes}
}

// mostText is how many nodes have a line in a text.
const mostText = 16

// Tables are those of a text; Markdown has no table of the share, and shorter
// headings.
func (v *View) Tables(text bool) (all []table) {
	if c := v.Compared; c != nil {
		all = append(all,
			tableOf("Beside run "+c.Run, "phase|median there|here|slowest there|here|", c.Phases, PhaseChange.cells),
			tableOf("Nodes that got slower", "node|phase|there|here|slower by", c.Nodes, NodeChange.cells, c.Notes...))
	}
	nodes := "Nodes"
	if text && v.Size > mostText {
		nodes = fmt.Sprintf("Nodes: the failed and the last to be ready, %d of %d", mostText, v.Size)
	}
	all = append(all,
		tableOf("Phases", "phase|nodes|median|p90|slowest|on|", v.Phases, PhaseStat.cells),
		tableOf("Critical path", "phase|waited for|from|took", v.Critical, Step.cells),
		tableOf(nodes, "rank|host|state|ready after||", v.Nodes[:min(len(v.Nodes), mostText)], Node.cells),
		v.checkTable())
	if share := v.Share; text && share != nil {
		all = append(all, tableOf("Calls into the share", "call|head|worker p50|worker most|all", share.Rows, askedCells, share.Notes...))
	}
	return append(all, tableOf("Configuration", "what|is", v.Config, Fact.cells))
}

// checkTable has the checks that did not pass, and how many others did.
func (v *View) checkTable() table {
	wrong, passed := v.sortedOut()
	t := tableOf("Checks", "verdict|check|on|observed|what to do", wrong, func(g CheckGroup) []string {
		return []string{g.Verdict, g.ID, g.On, g.Observed, g.Hint}
	})
	if len(passed) > 0 {
		t.Rows = append(t.Rows, []string{"PASS", fmt.Sprintf("%d others", len(passed)), "", "", ""})
	}
	return t
}

// aligned is the table for a terminal, without its heading.
func (t table) aligned() string {
	var padded, text strings.Builder
	w := tabwriter.NewWriter(&padded, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		_, _ = fmt.Fprintln(w, "  "+strings.Join(row, "\t")) // into memory
	}
	_ = w.Flush()
	for line := range strings.Lines(padded.String()) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return text.String()
}

// marking is what means something in Markdown, or in HTML inside it.
var marking = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "#", `\#`, "!", `\!`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "~", `\~`, "@", "@\u200b", "://", ":\u200b//")

// coded is text between back-quotes.
func coded(text string) string { return "`" + strings.ReplaceAll(text, "`", "'") + "`" }

// fenced is lines as they are, behind a fence that none of them can open.
func fenced(lines []string, indent string) string {
	if len(lines) == 0 {
		return ""
	}
	fence := "```"
	for strings.Contains(strings.Join(lines, "\n"), fence) {
		fence += "`"
	}
	all := slices.Concat([]string{"", fence + "text"}, lines, []string{fence, ""})
	return strings.TrimSuffix(strings.Join(all, "\n"+indent), indent)
}

// Cause is how a link of the chain is called.
func (l Link) Cause() string {
	if l.First {
		return "first cause"
	}
	return "consequence"
}

// Sentence is what has failed, and where.
func (l Link) Sentence() string {
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

// Important are those logs.
func (v *View) Important() []Log { return v.Logs[:min(len(v.Logs), importantLogs)] }

// Note says what the lines are of the file; nothing where they are all of it.
func (l Log) Note() string {
	switch {
	case l.Error != "":
		return l.Error
	case l.Cut:
		return fmt.Sprintf("the end of %s bytes", prose.Grouped(l.Size))
	case l.Size == 0:
		return "empty"
	default:
		return ""
	}
}

func (f Fact) cells() []string { return []string{f.Name, f.Value} }

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

func askedCells(r trail.AskedRow) []string {
	return []string{r.Call, prose.Grouped(r.Head), prose.Grouped(r.P50), prose.Grouped(r.Most), prose.Grouped(r.All)}
}

func (p PhaseChange) cells() []string {
	return []string{p.Phase, prose.Brief(p.Was[0]), prose.Brief(p.Is[0]), prose.Brief(p.Was[1]), prose.Brief(p.Is[1]), p.Says}
}

func (c NodeChange) cells() []string {
	return []string{nameOf(c.Rank, c.Host), c.Phase, prose.Brief(c.Was), prose.Brief(c.Is), prose.Brief(c.By())}
}
