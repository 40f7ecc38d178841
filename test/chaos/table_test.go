package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// table collects the outcomes of all faults.
type table struct {
	mu   sync.Mutex
	rows map[string]map[bool]*cell // by title and peer link; guarded by mu
}

// cell collects the outcomes of one fault with or without the peer link.
type cell struct {
	outcomes map[string]int
	most     time.Duration // until the last node that was not struck had ended
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
	if wrong {
		c.outcomes["**wrong**"]++
		return
	}
	c.outcomes[o.outcome(e.Victims)]++
	// If the driver ended the job, the duration has no meaning.
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
	text := strings.Join(parts, ", ")
	if c.most > 0 {
		text += fmt.Sprintf(" (at most %.1f s)", c.most.Seconds())
	}
	return text
}

// String returns the table in the order of the faults.
func (t *table) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
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
		if cells := t.rows[row]; cells != nil {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", row, cells[false], cells[true])
		}
	}
	return b.String()
}
