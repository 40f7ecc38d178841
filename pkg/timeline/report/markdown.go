package report

import (
	"fmt"
	"io"
	"strings"
)

// asMarkdown is for an issue or a chat.
func (v *View) asMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s: %s\n\n", marked(v.Banner.Word), marked(v.Banner.Title))
	fmt.Fprintf(&b, "Run %s, %s", coded(v.Run), plural(v.Size, "node"))
	if v.Banner.Code != nil {
		fmt.Fprintf(&b, ", exit code **%d**", *v.Banner.Code)
		if v.Banner.Meaning != "" {
			b.WriteString(" (" + marked(v.Banner.Meaning) + ")")
		}
	}
	b.WriteString(".\n")
	for _, link := range v.Banner.Chain {
		fmt.Fprintf(&b, "\n- **%s**: %s\n", link.name(), marked(link.sentence()))
		fenced(&b, link.Lines, "  ")
	}
	if v.Banner.More > 0 {
		fmt.Fprintf(&b, "- and %d more consequences\n", v.Banner.More)
	}
	bullets(&b, "What to do", v.Banner.Advice)
	bullets(&b, "Nodes to stay away from", v.Banner.Bad)
	bullets(&b, "Notes", v.Banner.Notes)
	bullets(&b, "What befell nodes", v.Banner.Events)
	bullets(&b, "What could not be read", v.Problems)
	if v.Compared != nil {
		v.markTable(&b, "Beside run "+v.Compared.Run, v.compareRows())
		v.markTable(&b, "Nodes that got slower", v.changeRows())
	}
	v.markTable(&b, "Phases", v.phaseRows())
	v.markTable(&b, "Critical path", v.criticalRows())
	v.markTable(&b, "Nodes", v.nodeRows(mostText))
	v.markTable(&b, "Checks", v.checkRows())
	v.markTable(&b, "Configuration", factRows(v.Config))
	for _, log := range v.shownLogs() {
		fmt.Fprintf(&b, "\n### %s%s\n", coded("logs/"+log.Name), marked(log.note()))
		fenced(&b, log.Lines, "")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// marking is what means something in Markdown, or in HTML inside it.
var marking = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "#", `\#`, "!", `\!`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "~", `\~`, "@", "@\u200b", "://", ":\u200b//")

func marked(text string) string { return marking.Replace(text) }

// coded is text between back-quotes.
func coded(text string) string { return "`" + strings.ReplaceAll(text, "`", "'") + "`" }

func bullets(b *strings.Builder, heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n**%s**\n\n", heading)
	for _, line := range lines {
		b.WriteString("- " + marked(line) + "\n")
	}
}

// fenced is lines as they are, behind a fence that none of them can open.
func fenced(b *strings.Builder, lines []string, indent string) {
	if len(lines) == 0 {
		return
	}
	fence := "```"
	for strings.Contains(strings.Join(lines, "\n"), fence) {
		fence += "`"
	}
	b.WriteString("\n" + indent + fence + "text\n")
	for _, line := range lines {
		b.WriteString(indent + line + "\n")
	}
	b.WriteString(indent + fence + "\n")
}

func (v *View) markTable(b *strings.Builder, heading string, rows [][]string) {
	if len(rows) < 2 {
		return
	}
	fmt.Fprintf(b, "\n### %s\n\n", marked(heading))
	for i, row := range rows {
		for _, cell := range row {
			b.WriteString("| " + marked(cell) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
}
