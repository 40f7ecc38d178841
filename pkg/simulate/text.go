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
func (r Report) Text() string { return written("text", r) + r.notes() }

// Table formats the report for people, with one row per run. The table is valid Markdown, too.
func (r Report) Table() string {
	text := written("table", r) + legend
	if r.Ranks > 0 {
		text += worldLegend
	}
	return text + r.notes()
}

//go:embed report.tmpl
var templates string

// written executes the template of the given name on a report or a run.
func written(name string, what any) string {
	all := template.Must(template.New("").Funcs(template.FuncMap{
		"time": textutil.MeasuredDuration, "grouped": func(n any) string { return textutil.GroupThousands(reflect.ValueOf(n).Int()) },
		"rate": rate, "size": size, "percent": percent, "calls": calls, "kinds": signal.AllOps, "table": table, "largest": Report.largest,
	}).Parse(templates))
	var b strings.Builder
	if err := all.ExecuteTemplate(&b, name, what); err != nil {
		return fmt.Sprintf("internal error: %v\n", err)
	}
	return b.String()
}

// largest returns the last run whose gate opened, or nil if there is none.
func (r Report) largest() *Run {
	for _, run := range slices.Backward(r.Runs) {
		if run.Gate > 0 {
			return &run
		}
	}
	return nil
}

// grid executes a template that writes one row per line, with "|" between the cells.
func grid(name string, what any) (rows [][]string) {
	for row := range strings.SplitSeq(strings.TrimSpace(written(name, what)), "\n") {
		rows = append(rows, strings.Split(row, "|"))
	}
	return rows
}

// calls returns the table of calls by kind.
func calls(run Run) string {
	rows := grid("calls", run)
	// The columns of the workers share a heading, and must be wide enough for it.
	const heading = "a worker, until up"
	widths := widthsOf(rows)
	worker := widths[1] + widths[2] + widths[3] + widths[4] + 3*len(gap)
	if missing := len(heading) - worker; missing > 0 {
		widths[1] += missing
		worker = len(heading)
	}
	var b strings.Builder
	// Write the headings, then the rows.
	fmt.Fprintf(&b, "  %-*s%s%*s%s%*s%s%*s%s%*s\n", widths[0], "calls", gap, worker, heading,
		gap, widths[5], "the head", gap, widths[6], "all nodes", gap, widths[7], "all nodes")
	for _, row := range rows {
		fmt.Fprintf(&b, "  %-*s", widths[0], row[0])
		for column := 1; column < len(row); column++ {
			fmt.Fprintf(&b, "%s%*s", gap, widths[column], row[column])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// gap is the space between two columns.
const gap = "  "

// widthsOf returns the width of each column.
func widthsOf(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, cells := range rows {
		for column, cell := range cells {
			widths[column] = max(widths[column], len(cell))
		}
	}
	return widths
}

// legend explains the columns of the table.
const legend = "Calls are those to the gate: of a worker (p50, most), of the head, of all. Steady is calls a second of one worker, and of the head.\n" +
	"Cores is which part of this machine's they took to the gate.\n"

// worldLegend explains the columns for ranks.
const worldLegend = "All met is from the gate until the last rank had left the last fence, and reads and writes are those of all nodes meanwhile.\n"

// table returns the table with one row per run in Markdown. All cells are aligned to the right.
func table(r Report) string {
	rows := grid("rows", r)
	widths := widthsOf(rows)
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
	// crowded is the fraction of busy processor time above which the machine itself slows a run down.
	crowded = 0.8
	// shared is the fraction of processor time used by other processes above which they slow a run
	// down.
	shared = 0.2
)

// notes explains how to read the figures, and warns about unreliable ones.
func (r Report) notes() string {
	var b strings.Builder
	noteWhere := func(so func(Run) bool, note string) {
		if slices.ContainsFunc(r.Runs, so) {
			b.WriteString(note + "\n")
		}
	}
	noteWhere(func(run Run) bool { return run.Machine.Busy+run.Machine.Others > crowded },
		"This machine's processors were all busy: its nodes waited for them more than for the share. Real nodes have their own.")
	noteWhere(func(run Run) bool { return run.Machine.Others > shared },
		"Others used this machine at the same time: repeat it when they don't.")
	noteWhere(func(run Run) bool { return run.Lifelines == overMemory },
		"Lifelines were kept in memory: this shell allows too few files for so many connections (ulimit -n).")
	fmt.Fprintf(&b, "Times are from the start of all. p50 and p99 are by nearest rank, over the nodes. A second's most calls are ten times those of "+
		"its busiest %s.\n", textutil.MeasuredDuration(peakWidth))
	return b.String()
}
