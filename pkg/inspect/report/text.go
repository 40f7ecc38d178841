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

// templateFiles has the formats for people. They alone decide how the content of a View is
// presented.
//
//go:embed page.html page.css page.js text.tmpl markdown.tmpl tables.tmpl
var templateFiles embed.FS

// templateFunctions are the functions that the templates call.
var templateFunctions = template.FuncMap{
	"brief": textutil.BriefDuration, "name": nodeName, "grouped": textutil.GroupThousands[int], "plural": formatCount, "join": strings.Join,
	"class": phaseClass, "meaning": phaseMeaning, "bringsUp": isBeforeGate, "table": newTextTable, "marked": markdownEscaper.Replace, "coded": inlineCode, "fenced": codeBlock,
}

// Format is an output format of a report.
type Format string

// The output formats.
const (
	FormatHTML     Format = "html"
	FormatJSON     Format = "json"
	FormatText     Format = "text"
	FormatMarkdown Format = "md"
	FormatTrace    Format = "chrome-trace"
)

// FormatNames returns the names of all output formats.
func FormatNames() []string {
	return []string{string(FormatHTML), string(FormatJSON), string(FormatText), string(FormatMarkdown), string(FormatTrace)}
}

// Write writes the view in the given format.
func (v *View) Write(w io.Writer, format Format) error {
	switch format {
	case FormatJSON:
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(v)
	case FormatText:
		return v.writeText(w, "text.tmpl")
	case FormatMarkdown:
		return v.writeText(w, "markdown.tmpl")
	case FormatTrace:
		return v.writeTrace(w)
	default:
		return v.writePage(w)
	}
}

// textTemplateData is a view with the additional data of the text formats.
type textTemplateData struct {
	*View
	Text          bool // plain text, not Markdown, which has shorter headings
	Wrong, Passed []CheckGroup
	Few           []NodeRow // nodes that have a line
	MostNodes     int
}

// maxTextNodes is the maximum number of nodes that have a line in a text.
const maxTextNodes = 16

// writeText writes the view with the named template. It parses the template at each call, because
// work at program start would slow down every command.
func (v *View) writeText(w io.Writer, name string) error {
	s := textTemplateData{View: v, Text: name == "text.tmpl", Few: v.Nodes[:min(len(v.Nodes), maxTextNodes)], MostNodes: maxTextNodes}
	s.Wrong, s.Passed = v.splitChecks()
	return template.Must(template.New(name).Funcs(templateFunctions).ParseFS(templateFiles, name, "tables.tmpl")).Execute(w, s)
}

// textTable has a heading, column names, and rows.
type textTable struct {
	Heading string
	Columns []string
	Rows    [][]string
}

// newTextTable returns a table without rows. The column names are separated by "|".
func newTextTable(heading, columns string) *textTable {
	return &textTable{Heading: heading, Columns: strings.Split(columns, "|")}
}

// Row adds a row. It returns an empty string, because a template prints the result of each call.
func (t *textTable) Row(cells ...string) string {
	t.Rows = append(t.Rows, cells)
	return ""
}

// Aligned formats the table for a terminal, without its heading.
func (t *textTable) Aligned() string {
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

// markdownEscaper escapes the characters that have a meaning in Markdown, or in HTML inside of it.
var markdownEscaper = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "#", `\#`, "!", `\!`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "~", `\~`, "@", "@\u200b", "://", ":\u200b//")

// inlineCode formats text as inline code.
func inlineCode(text string) string { return "`" + strings.ReplaceAll(text, "`", "'") + "`" }

// codeBlock formats lines as a code block. The fence is longer than any row of back-quotes in the
// lines, so that they cannot close the block.
func codeBlock(lines []string, indent string) string {
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
func (l CauseEntry) Cause() string {
	if l.First {
		return "first cause"
	}
	return "consequence"
}

// Sentence describes the failure, and when and on which node it occurred.
func (l CauseEntry) Sentence() string {
	said := nodeName(l.NodeIndex, l.Host) + ": " + l.What
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

// maxImportantLogs is the number of logs that are shown first, and in a text exclusively. The list
// begins with the logs of the driver, the head and the nodes that caused the failure.
const maxImportantLogs = 6

// Important returns the important logs.
func (v *View) Important() []LogTail { return v.Logs[:min(len(v.Logs), maxImportantLogs)] }

// Note describes which part of the file the lines are; it is empty if they are the whole file.
func (l LogTail) Note() string {
	switch {
	case l.Error != "":
		return l.Error
	case l.Cut:
		return fmt.Sprintf("the last part of %s bytes", textutil.GroupThousands(l.Size))
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
