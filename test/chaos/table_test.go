package chaos

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	document   = "../../docs/reliability.md"
	tableBegin = "<!-- chaos: written by go test -tags testbed ./test/chaos -update -->\n"
	tableEnd   = "<!-- end of chaos -->\n"
)

// table is what came of the faults, by fault and by how deaths are noticed.
type table struct {
	mu   sync.Mutex
	rows map[string]map[bool]*cell // by title and lifeline, guarded by mu
}

// cell is what came of one fault.
type cell struct {
	runs, wrong int
	outcomes    map[string]int
	most        time.Duration // that one of those ran on whom it did not strike
}

func newTable() *table { return &table{rows: make(map[string]map[bool]*cell)} }

// title is the row that a schedule belongs to.
func title(s schedule) string {
	if len(s.Faults) > 1 {
		return "two at once | two nodes"
	}
	f := s.Faults[0]
	switch {
	case strings.Contains(string(f.What), "all nodes"):
		return string(f.What) + " | all"
	case f.Rank == 0:
		return string(f.What) + " | the head"
	default:
		return string(f.What) + " | a worker"
	}
}

// note adds a run.
func (t *table) note(s schedule, e expectation, o seen, wrong bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	row := title(s)
	if t.rows[row] == nil {
		t.rows[row] = make(map[bool]*cell)
	}
	c := t.rows[row][s.Lifeline]
	if c == nil {
		c = &cell{outcomes: make(map[string]int)}
		t.rows[row][s.Lifeline] = c
	}
	c.runs++
	if wrong {
		c.wrong++
		return
	}
	c.outcomes[o.outcome(e.Victims)]++
	// How long the driver takes says nothing.
	if len(o.Told) > 0 && o.Told[0].Cause != nil {
		c.most = max(c.most, o.took(e.Victims))
	}
}

func (c *cell) String() string {
	if c == nil {
		return ""
	}
	var parts []string
	for outcome, count := range c.outcomes {
		parts = append(parts, fmt.Sprintf("%s × %d", outcome, count))
	}
	slices.Sort(parts)
	if c.wrong > 0 {
		parts = append(parts, fmt.Sprintf("**wrong × %d**", c.wrong))
	}
	text := strings.Join(parts, ", ")
	if c.most > 0 {
		text += fmt.Sprintf(" (at most %.1f s)", c.most.Seconds())
	}
	return text
}

// String is the table, in the order of the faults.
func (t *table) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	b.WriteString("| what is done | to whom | files alone | with the lifeline |\n|---|---|---|---|\n")
	titles := []string{}
	for _, trait := range traits {
		for _, whom := range []string{" | all", " | the head", " | a worker"} {
			titles = append(titles, string(trait.what)+whom)
		}
	}
	for _, row := range append(titles, "two at once | two nodes") {
		if cells := t.rows[row]; cells != nil {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", row, cells[false], cells[true])
		}
	}
	return b.String()
}

// write writes the table into the document.
func (t *table) write(to *testing.T) {
	to.Helper()
	if to.Failed() {
		to.Errorf("%s stays as it is: schedules have failed", document)
		return
	}
	data, err := os.ReadFile(document)
	if err != nil {
		to.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), tableBegin)
	_, tail, closed := strings.Cut(rest, tableEnd)
	if !ok || !closed {
		to.Fatalf("%s has no place for the table: %s", document, tableBegin)
	}
	text := head + tableBegin + "\n" + t.String() + "\n" + tableEnd + tail
	if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
		to.Fatal(err)
	}
}

func TestTable(t *testing.T) {
	results := newTable()
	e, o := lostTwo()
	s := schedule{Faults: []fault{{What: killDaemon, Rank: 2, Phase: inDriver}}}
	results.note(s, e, o, false)
	results.note(s, e, o, true)
	s.Lifeline = true
	results.note(s, e, o, false)
	e, o = driven()
	results.note(schedule{Faults: []fault{{What: stallShort}}}, e, o, false)
	const want = `| what is done | to whom | files alone | with the lifeline |
|---|---|---|---|
| kill -9 of a daemon | a worker | 76 daemon-died × 1, **wrong × 1** (at most 1.0 s) | 76 daemon-died × 1 (at most 1.0 s) |
| the share of all nodes does not answer for less than 1 s | all | 42 × 1 |  |
`
	if got := results.String(); got != want {
		t.Errorf("the table is\n%swant\n%s", got, want)
	}
}
