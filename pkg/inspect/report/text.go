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

// parts has the formats for people. They alone decide how the content of a View is presented.
//
//go:embed page.html page.css page.js text.tmpl markdown.tmpl tables.tmpl
var parts embed.FS

// functions are the functions that the templates call.
var functions = template.FuncMap{
	"brief": textutil.BriefDuration, "name": nameOf, "grouped": textutil.GroupThousands[int], "plural": plural, "join": strings.Join,
	"class": class, "bringsUp": brings, "table": newTable, "marked": marking.Replace, "coded": coded, "fenced": fenced,
}

// Format is an output format of a report.
type Format string

// The output formats.
const (
	HTML  Format = "html"
	JSON  Format = "json"
	Text  Format = "text"
	MD    Format = "md"
	Trace Format = "chrome-trace"
)

// Formats returns the names of all output formats.
func Formats() []string {
	return []string{string(HTML), string(JSON), string(Text), string(MD), string(Trace)}
}

// Write writes the view in the given format.
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

// sheet is a view with the additional data of the text formats.
type sheet struct {
	*View
	Text          bool // plain text, not Markdown, which has shorter headings
	Wrong, Passed []CheckGroup
	Few           []Node // nodes that have a line
	MostNodes     int
}

// mostText is the maximum number of nodes that have a line in a text.
const mostText = 16

// write writes the view with the named template. It parses the template at each call, because work
// at program start would slow down every command.
func (v *View) write(w io.Writer, name string) error {
	s := sheet{View: v, Text: name == "text.tmpl", Few: v.Nodes[:min(len(v.Nodes), mostText)], MostNodes: mostText}
	s.Wrong, s.Passed = v.sortedOut()
	return template.Must(template.New(name).Funcs(functions).ParseFS(parts, name, "tables.tmpl")).Execute(w, s)
}

// table has a heading, column names, and rows.
type table struct {
	Heading string
	Columns []string
	Rows    [][]string
}

// newTable returns a table without rows. The column names are separated by "|".
func newTable(heading, columns string) *table {
	return &table{Heading: heading, Columns: strings.Split(columns, "|")}
}

// Row adds a row. It returns an empty string, because a template prints the result of each call.
func (t *table) Row(cells ...string) string {
	t.Rows = append(t.Rows, cells)
	return ""
}

// Aligned formats the table for a terminal, without its heading.
func (t *table) Aligned() string {
	var padded, text strings.Builder
	w := tabwriter.NewWriter(&padded, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		_, _ = fmt.Fprintln(w, "  "+strings.Join(row, "\t")) // writing to memory cannot fail
	}
	_ = w.Flush()
	for line := range strings.Lines(padded.String()) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return text.String()
}

// marking escapes the characters that have a meaning in Markdown, or in HTML inside of it.
var marking = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "#", `\#`, "!", `\!`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "~", `\~`, "@", "@\u200b", "://", ":\u200b//")

// coded formats text as inline code.
func coded(text string) string { return "`" + strings.ReplaceAll(text, "`", "'") + "`" }

// fenced formats lines as a code block. The fence is longer than any row of back-quotes in the
// lines, so that they cannot close the block.
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

// Cause returns the label of a failure in the chain.
func (l Link) Cause() string {
	if l.First {
		return "first cause"
	}
	return "consequence"
}

// Sentence describes the failure, and when and on which node it occurred.
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

// importantLogs is the number of logs that are shown first, and in a text exclusively. The list
// begins with the logs of the driver, the head and the nodes that caused the failure.
const importantLogs = 6

// Important returns the important logs.
func (v *View) Important() []Log { return v.Logs[:min(len(v.Logs), importantLogs)] }

// Note describes which part of the file the lines are; it is empty if they are the whole file.
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

// Note describes problems of a phase.
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
