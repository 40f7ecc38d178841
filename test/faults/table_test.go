package faults

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const document = "README.md"

// results collects the outcomes for the cells of one table in the document.
type results struct {
	name    string   // name of the table in the markers around it
	columns []string // column heads; the first ones are for the row's title
	titled  int      // number of title columns

	mu  sync.Mutex
	got map[string]map[string]outcome // by row and column; guarded by mu
}

func newResults(name string, title, columns []string) *results {
	return &results{name: name, columns: append(title, columns...), titled: len(title),
		got: make(map[string]map[string]outcome)}
}

// note stores the outcome of a cell.
func (r *results) note(row, column string, o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.got[row] == nil {
		r.got[row] = make(map[string]outcome)
	}
	r.got[row][column] = o
}

// settle compares the table in the document with the outcomes of the cells that were run, or writes
// it.
func (r *results) settle(t *testing.T, rows []string) {
	t.Helper()
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	begin := fmt.Sprintf("<!-- %s: written by go test ./test/faults -update -->\n", r.name)
	end := fmt.Sprintf("<!-- end of %s -->\n", r.name)
	head, rest, ok := strings.Cut(string(data), begin)
	old, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table: %s", document, begin)
	}
	known := parse(old, r.columns, r.titled)
	if *update {
		if t.Failed() {
			t.Fatalf("%s stays as it is: cells have failed", document)
		}
		text := head + begin + "\n" + r.table(rows, known) + "\n" + end + tail
		if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	r.compare(t, rows, known)
}

// compare checks the cells that were run against the table. It ignores the times, which are only
// informative.
func (r *results) compare(t *testing.T, rows []string, known map[string]map[string]string) {
	t.Helper()
	for _, row := range rows {
		for _, column := range r.columns[r.titled:] {
			o, ran := r.got[row][column]
			if want := timeless(known[row][column]); ran && o.String() != want {
				t.Errorf("%s: %s came to %q, and %s says %q: see it for what to run", row, column,
					o, document, want)
			}
		}
	}
	for row := range known {
		if !slices.Contains(rows, row) {
			t.Errorf("%s has an unknown row: %s", document, row)
		}
	}
}

// table formats the outcomes. Cells that were not run keep their known content.
func (r *results) table(rows []string, known map[string]map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(r.columns, " | "),
		strings.Repeat("---|", len(r.columns)))
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, column := range r.columns[r.titled:] {
			text := known[row][column]
			if o, ran := r.got[row][column]; ran {
				text = fmt.Sprintf("%s (%.1f s)", o, o.took.Seconds())
			}
			fmt.Fprintf(&b, " %s |", text)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// parse reads a table and returns its cells by row and column.
func parse(text string, columns []string, titled int) map[string]map[string]string {
	known := make(map[string]map[string]string)
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		if len(fields) != len(columns) || fields[0] == columns[0] ||
			strings.HasPrefix(fields[0], "---") {
			continue
		}
		row := strings.Join(fields[:titled], " | ")
		known[row] = make(map[string]string)
		for i, column := range columns[titled:] {
			known[row][column] = fields[titled+i]
		}
	}
	return known
}

var timePattern = regexp.MustCompile(` \([0-9.]+ s\)$`)

func timeless(cell string) string { return timePattern.ReplaceAllString(cell, "") }

// slug converts a title into the name of a test.
func slug(s string) string {
	return strings.NewReplacer(" | ", "/", " ", "-", ",", "", ":", "", "(", "", ")", "", "%",
		"percent").Replace(s)
}

// TestTable checks that a table is written and read back without loss.
func TestTable(t *testing.T) {
	r := newResults("x", []string{"what", "where"}, []string{"one", "two"})
	r.note("a | all", "two", outcome{codes: [size]int{42}, took: 1e9})
	rows := []string{"a | all", "b | all"}
	known := map[string]map[string]string{
		"a | all": {"one": "76: node 2 lost (3.1 s)", "two": "old"}}
	const want = `| what | where | one | two |
|---|---|---|---|
| a | all | 76: node 2 lost (3.1 s) | 42 (1.0 s) |
| b | all |  |  |
`
	text := r.table(rows, known)
	if text != want {
		t.Errorf("the table is\n%swant\n%s", text, want)
	}
	again := parse(text, r.columns, r.titled)
	if got := again["a | all"]["one"]; got != "76: node 2 lost (3.1 s)" ||
		timeless(got) != "76: node 2 lost" {
		t.Errorf("it reads %q of it", got)
	}
	if got := timeless(again["a | all"]["two"]); got != "42" {
		t.Errorf("it reads %q of it", got)
	}
}
