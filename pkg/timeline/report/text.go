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
		return v.asJSON(w)
	case Text:
		return v.asText(w)
	case MD:
		return v.asMarkdown(w)
	case Trace:
		return v.asTrace(w)
	default:
		return v.asPage(w)
	}
}

func (v *View) asJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// mostText is how many nodes have a line in a text.
const mostText = 16

func (v *View) asText(w io.Writer) error {
	var b strings.Builder
	b.WriteString(v.headline() + "\n")
	if v.Banner.Meaning != "" {
		fmt.Fprintf(&b, "  exit code %d: %s\n", *v.Banner.Code, v.Banner.Meaning)
	}
	for _, link := range v.Banner.Chain {
		fmt.Fprintf(&b, "  %s: %s\n", link.name(), link.sentence())
		for _, line := range link.Lines {
			fmt.Fprintf(&b, "    | %s\n", line)
		}
	}
	if v.Banner.More > 0 {
		fmt.Fprintf(&b, "  and %d more consequences\n", v.Banner.More)
	}
	listed(&b, "  next: ", v.Banner.Advice)
	if len(v.Banner.Bad) > 0 {
		fmt.Fprintf(&b, "  to stay away from: %s\n", strings.Join(v.Banner.Bad, ", "))
	}
	listed(&b, "  note: ", v.Banner.Notes)
	listed(&b, "  befell: ", v.Banner.Events)
	listed(&b, "  could not be read: ", v.Problems)
	v.textTables(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (v *View) headline() string {
	return fmt.Sprintf("%s: %s (run %s)", v.Banner.Word, v.Banner.Title, v.Run)
}

func (l Link) name() string {
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

func listed(b *strings.Builder, prefix string, lines []string) {
	for _, line := range lines {
		b.WriteString(prefix + line + "\n")
	}
}

// table is a heading and aligned rows.
func table(b *strings.Builder, heading string, rows [][]string) {
	if len(rows) < 2 {
		return
	}
	b.WriteString("\n" + heading + "\n")
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, "  "+strings.Join(row, "\t")) // into memory
	}
	_ = w.Flush()
	for line := range strings.Lines(aligned.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

func (v *View) textTables(b *strings.Builder) {
	b.WriteString("\n")
	for _, f := range v.Facts {
		fmt.Fprintf(b, "  %s: %s", f.Name, f.Value)
		if f.Note != "" {
			fmt.Fprintf(b, " (%s)", f.Note)
		}
		b.WriteString("\n")
	}
	if v.Compared != nil {
		table(b, "Beside run "+v.Compared.Run, v.compareRows())
		table(b, "Nodes that got slower", v.changeRows())
		listed(b, "  ", v.Compared.Notes)
	}
	table(b, "Phases", v.phaseRows())
	table(b, "Critical path", v.criticalRows())
	heading := "Nodes"
	if v.Size > mostText {
		heading = fmt.Sprintf("Nodes: the failed and the last to be ready, %d of %d", mostText, v.Size)
	}
	table(b, heading, v.nodeRows(mostText))
	table(b, "Checks", v.checkRows())
	if v.Share != nil {
		table(b, "Calls into the share", v.shareRows())
		listed(b, "  ", v.Share.Notes)
	}
	table(b, "Configuration", factRows(v.Config))
	for _, log := range v.shownLogs() {
		fmt.Fprintf(b, "\nlogs/%s%s\n", log.Name, log.note())
		for _, line := range log.Lines {
			b.WriteString("  | " + line + "\n")
		}
	}
}

// shownLogs are those that a text has: the driver's, the head's and those of
// nodes to blame, which come first.
func (v *View) shownLogs() []Log {
	return v.Logs[:min(len(v.Logs), 6)]
}

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

func (v *View) phaseRows() [][]string {
	rows := [][]string{{"phase", "nodes", "median", "p90", "slowest", "on", ""}}
	for _, s := range v.Phases {
		rows = append(rows, []string{s.Phase, prose.Grouped(s.Nodes), prose.Brief(s.P50), prose.Brief(s.P90), prose.Brief(s.Max), nameOf(s.Rank, s.Host), s.Note()})
	}
	return rows
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

func (v *View) criticalRows() [][]string {
	rows := [][]string{{"phase", "waited for", "from", "took"}}
	for _, s := range v.Critical {
		rows = append(rows, []string{s.Phase, nameOf(s.Rank, s.Host), prose.Brief(s.From), prose.Brief(s.Took())})
	}
	return rows
}

func (v *View) nodeRows(most int) [][]string {
	rows := [][]string{{"rank", "host", "state", "ready after", "", ""}}
	for _, n := range v.Nodes[:min(len(v.Nodes), most)] {
		ready, slow, why := "never", "", ""
		if n.Ready > 0 {
			ready = prose.Brief(n.Ready)
		}
		if len(n.Slow) > 0 {
			slow = "slow: " + strings.Join(n.Slow, ", ")
		}
		if len(n.Failures) > 0 {
			why = n.Failures[0].What
		}
		rows = append(rows, []string{fmt.Sprint(n.Rank), n.Host, n.State, ready, slow, why})
	}
	return rows
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

func (v *View) shareRows() [][]string {
	rows := [][]string{{"call", "head", "worker p50", "worker most", "all"}}
	for _, r := range v.Share.Rows {
		rows = append(rows, []string{r.Call, prose.Grouped(r.Head), prose.Grouped(r.WorkerP50), prose.Grouped(r.WorkerMost), prose.Grouped(r.All)})
	}
	return rows
}

func factRows(facts []Fact) [][]string {
	rows := [][]string{{"what", "is"}}
	for _, f := range facts {
		rows = append(rows, []string{f.Name, f.Value})
	}
	return rows
}

func (v *View) compareRows() [][]string {
	rows := [][]string{{"phase", "median there", "here", "slowest there", "here", ""}}
	for _, p := range v.Compared.Phases {
		rows = append(rows, []string{p.Phase, prose.Brief(p.Was), prose.Brief(p.Is), prose.Brief(p.WasMax), prose.Brief(p.IsMax), p.Says})
	}
	return rows
}

func (v *View) changeRows() [][]string {
	rows := [][]string{{"node", "phase", "there", "here", "slower by"}}
	for _, c := range v.Compared.Nodes {
		rows = append(rows, []string{nameOf(c.Rank, c.Host), c.Phase, prose.Brief(c.Was), prose.Brief(c.Is), prose.Brief(c.By())})
	}
	return rows
}
