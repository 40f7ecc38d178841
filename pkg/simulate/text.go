package simulate

import (
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Text is the report for people: each run in full.
func (r Report) Text() string { return r.written("text") + r.notes() }

// Table is the report for people: one row a run. It is a table in Markdown,
// too.
func (r Report) Table() string { return r.written("table") + legend + r.notes() }

//go:embed report.tmpl
var templates string

// written is the report by the template of that name.
func (r Report) written(name string) string {
	all := template.Must(template.New("").Funcs(template.FuncMap{
		"time": prose.Measured, "grouped": func(n any) string { return prose.Grouped(reflect.ValueOf(n).Int()) },
		"rate": rate, "size": size, "percent": percent, "calls": calls, "table": Report.table, "largest": Report.largest,
	}).Parse(templates))
	var b strings.Builder
	if err := all.ExecuteTemplate(&b, name, r); err != nil {
		return fmt.Sprintf("internal error: %v\n", err)
	}
	return b.String()
}

// largest is the last run that came to the gate; nil: none did.
func (r Report) largest() *Run {
	for _, run := range slices.Backward(r.Runs) {
		if run.Gate > 0 {
			return &run
		}
	}
	return nil
}

// calls is the table of calls by kind.
func calls(run Run) string {
	grid := [][]string{
		{"", "min", "p50", "p99", "max", "to the gate", "to the gate", "to the end"},
		cells("all, until up", run.Worker.Calls),
		cells("all, to the gate", run.WorkerToGate, run.Head.Calls, run.ToGate.Calls, run.Whole.Calls),
	}
	for _, op := range signal.Ops() {
		kind := op.String()
		if run.Whole.ByKind[kind] > 0 {
			grid = append(grid, cells(kind, run.Worker.ByKind[kind], run.Head.ByKind[kind], run.ToGate.ByKind[kind], run.Whole.ByKind[kind]))
		}
	}
	if run.Gate == 0 {
		dash(grid[2][1:5])
		for _, row := range grid[2:] {
			dash(row[5:7])
		}
	}
	const heading = "a worker, until up"
	widths := widthsOf(grid)
	worker := widths[1] + widths[2] + widths[3] + widths[4] + 3*len(gap)
	if missing := len(heading) - worker; missing > 0 {
		widths[1] += missing
		worker = len(heading)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  %-*s%s%*s%s%*s%s%*s%s%*s\n", widths[0], "calls", gap, worker, heading,
		gap, widths[5], "the head", gap, widths[6], "all nodes", gap, widths[7], "all nodes")
	for _, row := range grid {
		fmt.Fprintf(&b, "  %-*s", widths[0], row[0])
		for column := 1; column < len(row); column++ {
			fmt.Fprintf(&b, "%s%*s", gap, widths[column], row[column])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// dash is for what was not reached.
func dash(cells []string) {
	for i := range cells {
		cells[i] = "-"
	}
}

// gap stands between two columns.
const gap = "  "

// cells is a row of calls.
func cells(name string, worker Spread[int64], others ...int64) []string {
	row := []string{name, prose.Grouped(worker.Min), prose.Grouped(worker.P50), prose.Grouped(worker.P99), prose.Grouped(worker.Max)}
	for _, n := range others {
		row = append(row, prose.Grouped(n))
	}
	return row
}

func widthsOf(grid [][]string) []int {
	widths := make([]int, len(grid[0]))
	for _, cells := range grid {
		for column, cell := range cells {
			widths[column] = max(widths[column], len(cell))
		}
	}
	return widths
}

// table has one row a run.
func (r Report) table() string {
	grid := [][]string{
		{"nodes", "added", "gate", "up p50", "up p99", "last up", "worker calls", "most", "head calls", "all calls", "most /s",
			"steady /s", "head /s", "end", "lifelines", "memory", "goroutines", "cores"},
	}
	if r.Dies != "" {
		grid[0] = append(grid[0], "death p50", "death p99", "last", "death cores")
	}
	for _, run := range r.Runs {
		row := r.row(run)
		if r.Dies != "" {
			row = append(row, deathRow(run.Death)...)
		}
		grid = append(grid, row)
	}
	return markdown(grid)
}

// row is a run in the table; what it did not reach is a dash.
func (r Report) row(run Run) []string {
	toGate := []string{
		prose.Measured(run.Gate), prose.Measured(run.Up.P50), prose.Measured(run.Up.P99), prose.Measured(run.Up.Max), prose.Grouped(run.WorkerToGate.P50),
		prose.Grouped(run.WorkerToGate.Max), prose.Grouped(run.Head.Calls), prose.Grouped(run.ToGate.Calls), prose.Grouped(run.Peak),
	}
	cores := percent(run.Machine.Busy)
	if run.Gate == 0 {
		dash(toGate)
		toGate[0], cores = "failed", "-"
	}
	worker, head, end := "-", "-", "-"
	if run.Steady != nil {
		worker, head = rate(run.Steady.Worker), rate(run.Steady.Head)
	}
	if run.End.Took > 0 {
		end = prose.Measured(run.End.Took)
	}
	return slices.Concat([]string{prose.Grouped(run.Nodes), prose.Measured(r.Latency)}, toGate,
		[]string{worker, head, end, run.Lifelines, size(run.Machine.Memory), prose.Grouped(run.Machine.Goroutines), cores})
}

// deathRow is a death in the table.
func deathRow(d *Death) []string {
	if d == nil {
		return []string{"-", "-", "-", "-"}
	}
	return []string{prose.Measured(d.Took.P50), prose.Measured(d.Took.P99), prose.Measured(d.Took.Max), percent(d.Busy)}
}

const legend = "Calls are those to the gate: of a worker (p50, most), of the head, of all. Steady is calls a second of one worker, and of the head.\n" +
	"Cores is which part of this machine's they took to the gate.\n"

// markdown sets a grid with all cells to the right.
func markdown(grid [][]string) string {
	widths := widthsOf(grid)
	var b strings.Builder
	for i, cells := range grid {
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
	// crowded is from when on a machine is to blame for a run's times.
	crowded = 0.8
	// shared is from when on others on it are.
	shared = 0.2
)

// notes say how to read the figures, and which of them not to believe.
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
		"its busiest %s.\n", prose.Measured(peakWidth))
	return b.String()
}
