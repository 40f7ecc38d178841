package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	document   = "../faults/README.md"
	tableBegin = "<!-- chaos: written by go test -tags testbed ./test/chaos -update -->\n"
	tableEnd   = "<!-- end of chaos -->\n"
)

// table collects the outcomes of all faults.
type table struct {
	file string // each result is appended to it as a line; "" means no file

	mu   sync.Mutex
	runs map[uint64]result // by seed; guarded by mu
}

// result is the outcome of one schedule.
type result struct {
	Seed     uint64 `json:"seed"`
	Row      string `json:"row"`
	Lifeline bool   `json:"lifeline,omitzero"`
	Outcome  string `json:"outcome,omitzero"` // empty if it was wrong
	// until the last node that was not struck had ended
	Took time.Duration `json:"took_ns,omitzero"`
}

// cell collects the outcomes of one fault with or without the peer link.
type cell struct {
	outcomes map[string]int
	wrong    int
	most     time.Duration
}

// newTable returns a table with the results that a file contains already. For a schedule that ran
// more than once, the last result counts.
func newTable(file string) (*table, error) {
	t := &table{file: file, runs: make(map[uint64]result)}
	data, err := os.ReadFile(file)
	if file == "" || errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		var r result
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("cannot read a result in %s: %q: %v", file, line, err)
		}
		t.runs[r.Seed] = r
	}
	return t, nil
}

// beside ends the title of a harmless fault that is combined with another one.
const beside = ", and another fault | all"

// title returns the title of the row that a schedule belongs to.
func title(s schedule) string {
	if named(s) == failDriver {
		return string(failDriver) + " | a worker"
	}
	f := s.Faults[0]
	switch {
	case len(s.Faults) > 1 && traitOf(f.What).harmless:
		return string(f.What) + beside
	case len(s.Faults) > 1:
		return "two faults at once | two nodes"
	case strings.Contains(string(f.What), "all nodes"), f.What == cutLines, f.What == unheard:
		return string(f.What) + " | all"
	case traitOf(f.What).more > 0 && slices.Contains(f.struck(s.Nodes), 0):
		return string(f.What) + " | the head, too"
	case traitOf(f.What).more > 0:
		return string(f.What) + " | workers"
	case f.Node == 0:
		return string(f.What) + " | the head"
	default:
		return string(f.What) + " | a worker"
	}
}

// note adds a run.
func (t *table) note(s schedule, e expectation, o seen, wrong bool) error {
	r := result{Seed: s.Seed, Row: title(s), Lifeline: s.Lifeline}
	if !wrong {
		r.Outcome = o.outcome(e.Victims)
	}
	// If the driver ended the job, the duration has no meaning.
	if !wrong && len(o.Told) > 0 && o.Told[0].Cause != nil {
		r.Took = o.took(e.Victims)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs[s.Seed] = r
	if t.file == "" {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(t.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// wrong returns the seeds whose jobs have not ended as expected.
func (t *table) wrong() (seeds []uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for seed, r := range t.runs {
		if r.Outcome == "" {
			seeds = append(seeds, seed)
		}
	}
	slices.Sort(seeds)
	return seeds
}

// cells returns the results by row and peer link.
func (t *table) cells() map[string]map[bool]*cell {
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := make(map[string]map[bool]*cell)
	for _, r := range t.runs {
		if rows[r.Row] == nil {
			rows[r.Row] = make(map[bool]*cell)
		}
		c := rows[r.Row][r.Lifeline]
		if c == nil {
			c = &cell{outcomes: make(map[string]int)}
			rows[r.Row][r.Lifeline] = c
		}
		c.most = max(c.most, r.Took)
		if r.Outcome == "" {
			c.wrong++
			continue
		}
		c.outcomes[r.Outcome]++
	}
	return rows
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

// String returns the table in the order of the faults.
func (t *table) String() string {
	rows := t.cells()
	var b strings.Builder
	b.WriteString("| fault | on | heartbeat files only | with peer links |\n|---|---|---|---|\n")
	titles := []string{}
	for _, trait := range traits {
		for _, whom := range []string{" | all", beside, " | the head", " | the head, too",
			" | a worker", " | workers"} {
			titles = append(titles, string(trait.what)+whom)
		}
	}
	for _, row := range append(titles, "two faults at once | two nodes") {
		if cells := rows[row]; cells != nil {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", row, cells[false], cells[true])
		}
	}
	return b.String()
}

// write writes the table into the document.
func (t *table) write(to *testing.T) {
	to.Helper()
	if wrong := t.wrong(); len(wrong) > 0 {
		to.Errorf("%s stays as it is: the schedules of the seeds %v have failed", document, wrong)
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

// TestTable checks how results are counted, written to a file and read back.
func TestTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	results, err := newTable(file)
	if err != nil {
		t.Fatal(err)
	}
	note := func(s schedule, e expectation, o seen, wrong bool) {
		t.Helper()
		if err := results.note(s, e, o, wrong); err != nil {
			t.Fatal(err)
		}
	}
	e, o := lostTwo()
	s := schedule{Seed: 1, Faults: []fault{{What: killDaemon, Node: 2, Phase: inDriver}}}
	note(s, e, o, false)
	s.Seed = 2
	note(s, e, o, true)
	s.Seed, s.Lifeline = 3, true
	note(s, e, o, true)
	note(s, e, o, false)
	e, o = driven()
	note(schedule{Seed: 4, Faults: []fault{{What: stallShort}}}, e, o, false)
	const want = `| fault | on | heartbeat files only | with peer links |
|---|---|---|---|
| kill -9 of a daemon | a worker | 76 daemon-died × 1, **wrong × 1** (at most 1.0 s) | 76 daemon-died × 1 (at most 1.0 s) |
| the shared file system of all nodes does not respond for less than 1 s | all | 42 × 1 |  |
`
	if got := results.String(); got != want {
		t.Errorf("the table is\n%swant\n%s", got, want)
	}
	again, err := newTable(file)
	if err != nil || again.String() != want || !slices.Equal(again.wrong(), []uint64{2}) {
		t.Errorf("read again (%v) the table is\n%swith wrong ones of the seeds %v, want\n%sand 2",
			err, again, again.wrong(), want)
	}
}
