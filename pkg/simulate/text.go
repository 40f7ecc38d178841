package simulate

import (
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Text formats the report for people, with each run in full.
func (r Report) Text() string { return executeTemplate("text", r) + r.formatNotes() }

// Table formats the report for people, with one row per run. The table is valid Markdown, too.
func (r Report) Table() string {
	text := executeTemplate("table", r) + tableLegend
	if r.Ranks > 0 {
		text += worldLegend
	}
	return text + r.formatNotes()
}

//go:embed report.tmpl
var reportTemplates string

// executeTemplate executes the template of the given name on a report or a run.
func executeTemplate(name string, what any) string {
	all := template.Must(template.New("").Funcs(template.FuncMap{
		"time": textutil.MeasuredDuration, "grouped": func(n any) string { return textutil.GroupThousands(reflect.ValueOf(n).Int()) },
		"rate": formatRate, "size": formatMiB, "percent": formatPercent, "calls": formatCallTable, "chain": formatChain, "kinds": signal.AllOps, "table": markdownTable, "largest": Report.largestJob,
	}).Parse(reportTemplates))
	var b strings.Builder
	if err := all.ExecuteTemplate(&b, name, what); err != nil {
		return fmt.Sprintf("internal error: %v\n", err)
	}
	return b.String()
}

// largestJob returns the last run whose gate opened, or nil if there is none.
func (r Report) largestJob() *JobResult {
	for _, run := range slices.Backward(r.Runs) {
		if run.Gate > 0 {
			return &run
		}
	}
	return nil
}

// templateCells executes a template that writes one row per line, with "|" between the cells.
func templateCells(name string, what any) (rows [][]string) {
	for row := range strings.SplitSeq(strings.TrimSpace(executeTemplate(name, what)), "\n") {
		rows = append(rows, strings.Split(row, "|"))
	}
	return rows
}

// formatCallTable returns the table of calls by kind.
func formatCallTable(run JobResult) string {
	rows := templateCells("calls", run)
	// The columns of the workers share a heading, and must be wide enough for it.
	const heading = "worker, until up"
	widths := columnWidths(rows)
	worker := widths[1] + widths[2] + widths[3] + widths[4] + 3*len(columnGap)
	if missing := len(heading) - worker; missing > 0 {
		widths[1] += missing
		worker = len(heading)
	}
	var b strings.Builder
	// Write the headings, then the rows.
	fmt.Fprintf(&b, "  %-*s%s%*s%s%*s%s%*s%s%*s\n", widths[0], "calls", columnGap, worker, heading,
		columnGap, widths[5], "the head", columnGap, widths[6], "all nodes", columnGap, widths[7], "all nodes")
	for _, row := range rows {
		fmt.Fprintf(&b, "  %-*s", widths[0], row[0])
		for column := 1; column < len(row); column++ {
			fmt.Fprintf(&b, "%s%*s", columnGap, widths[column], row[column])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// columnGap is the space between two columns.
const columnGap = "  "

// columnWidths returns the width of each column.
func columnWidths(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, cells := range rows {
		for column, cell := range cells {
			widths[column] = max(widths[column], len(cell))
		}
	}
	return widths
}

// tableLegend explains the columns of the table.
const tableLegend = "Calls count until the gate opens: per worker (p50, most), of the head, of all. Steady is calls per second of one worker, and of the head.\n" +
	"Cores is the part of this machine's cores used until the gate opened.\n"

// worldLegend explains the columns for ranks.
const worldLegend = "All met is the time from the gate until the last rank left the last fence; reads and writes are those of all nodes in that time.\n"

// markdownTable returns the table with one row per run in Markdown. All cells are aligned to the
// right.
func markdownTable(r Report) string {
	rows := templateCells("rows", r)
	widths := columnWidths(rows)
	var b strings.Builder
	for i, cells := range rows {
		for column, cell := range cells {
			fmt.Fprintf(&b, "| %*s ", widths[column], cell)
		}
		b.WriteString("|\n")
		if i == 0 {
			for _, width := range widths {
				b.WriteString("|" + strings.Repeat("-", width+1) + ":")
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

const (
	// maxCrowdFraction is the fraction of busy processor time above which the machine itself slows a
	// run down.
	maxCrowdFraction = 0.8
	// maxOthersFraction is the fraction of processor time used by other processes above which they
	// slow a run down.
	maxOthersFraction = 0.2
)

// formatNotes explains how to read the figures, and warns about unreliable ones.
func (r Report) formatNotes() string {
	var b strings.Builder
	noteWhere := func(so func(JobResult) bool, note string) {
		if slices.ContainsFunc(r.Runs, so) {
			b.WriteString(note + "\n")
		}
	}
	noteWhere(func(run JobResult) bool { return run.Machine.Busy+run.Machine.Others > maxCrowdFraction },
		"This machine's processors were all busy: its nodes waited for them more than for the shared file system. Real nodes have their own.")
	noteWhere(func(run JobResult) bool { return run.Machine.Others > maxOthersFraction },
		"Other programs used this machine at the same time: repeat the simulation when it is idle.")
	noteWhere(func(run JobResult) bool { return run.Lifelines == transportMemory },
		"Peer links were simulated in memory: this shell allows too few open files for all connections (ulimit -n).")
	fmt.Fprintf(&b, "Times count from the start of the simulation. p50 and p99 are by nearest rank, over the nodes. The most calls per second are ten times those of "+
		"the busiest %s.\n", textutil.MeasuredDuration(peakWidth))
	return b.String()
}
