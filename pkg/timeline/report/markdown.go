package report

import (
	"fmt"
	"strings"
)

// asMarkdown is for an issue or a chat.
func (v *View) asMarkdown() string {
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
		fmt.Fprintf(&b, "\n- **%s**: %s\n", link.Cause(), marked(link.sentence()))
		fenced(&b, link.Lines, "  ")
	}
	if v.Banner.More > 0 {
		fmt.Fprintf(&b, "- and %d more consequences\n", v.Banner.More)
	}
	for _, l := range v.lists() {
		if len(l.lines) > 0 {
			fmt.Fprintf(&b, "\n**%s**\n\n", l.heading)
		}
		for _, line := range l.lines {
			b.WriteString("- " + marked(line) + "\n")
		}
	}
	for _, t := range v.tables(false) {
		t.marked(&b)
	}
	for _, log := range v.shownLogs() {
		fmt.Fprintf(&b, "\n### %s%s\n", coded("logs/"+log.Name), marked(log.note()))
		fenced(&b, log.Lines, "")
	}
	return b.String()
}

// marking is what means something in Markdown, or in HTML inside it.
var marking = strings.NewReplacer(`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "#", `\#`, "!", `\!`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "~", `\~`, "@", "@\u200b", "://", ":\u200b//")

func marked(text string) string { return marking.Replace(text) }

// coded is text between back-quotes.
func coded(text string) string { return "`" + strings.ReplaceAll(text, "`", "'") + "`" }

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
	listed(b, indent, lines)
	b.WriteString(indent + fence + "\n")
}

// marked writes a table; one without rows is none.
func (t table) marked(b *strings.Builder) {
	if len(t.rows) < 2 {
		return
	}
	fmt.Fprintf(b, "\n### %s\n\n", marked(t.heading))
	for i, row := range t.rows {
		for _, cell := range row {
			b.WriteString("| " + marked(cell) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
}
