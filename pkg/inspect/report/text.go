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

	"github.com/bringupd/bringupd/internal/textutil"
)

// parts are the formats that people read: how they put what a View has is theirs.
//
//go:embed page.html page.css page.js text.tmpl markdown.tmpl tables.tmpl
var parts embed.FS

// functions are those that the formats call.
var functions = template.FuncMap{
	"brief": textutil.BriefDuration, "name": nameOf, "grouped": textutil.GroupThousands[int], "plural": plural, "join": strings.Join,
	"class": class, "bringsUp": brings, "table": newTable, "marked": marking.Replace, "coded": coded, "fenced": fenced,
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
		return v.write(w, "text.tmpl")
	case MD:
		return v.write(w, "markdown.tmpl")
	case Trace:
		return v.asTrace(w)
	default:
		return v.asPage(w)
	}
}

// sheet is a view with what its formats of lines need.
type sheet struct {
	*View
	Text          bool // Markdown has shorter headings
	Wrong, Passed []CheckGroup
	Few           []Node // that have a line
	MostNodes     int
}

// mostText is how many nodes have a line in a text.
const mostText = 16

// write writes the view in a format of lines. Its template is parsed by who writes
// one: every command pays for what the program does at its start.
func (v *View) write(w io.Writer, name string) error {
	s := sheet{View: v, Text: name == "text.tmpl", Few: v.Nodes[:min(len(v.Nodes), mostText)], MostNodes: mostText}
	s.Wrong, s.Passed = v.sortedOut()
	return template.Must(template.New(name).Funcs(functions).ParseFS(parts, name, "tables.tmpl")).Execute(w, s)
}

// table has a heading, and rows under the names of their columns.
type table struct {
	Heading string
	Columns []string
	Rows    [][]string
}

// newTable returns one without rows; columns are the names, between bars.
func newTable(heading, columns string) *table {
	return &table{Heading: heading, Columns: strings.Split(columns, "|")}
}

// Row adds one. It returns nothing to be shown, as a template wants it.
func (t *table) Row(cells ...string) string {
	t.Rows = append(t.Rows, cells)
	return ""
}

// Aligned is the table for a terminal, without its heading.
func (t *table) Aligned() string {
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
			said += ", after " + textutil.BriefDuration(l.At)
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
		return fmt.Sprintf("the end of %s bytes", textutil.GroupThousands(l.Size))
	case l.Size == 0:
		return "empty"
	default:
		return ""
	}
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
