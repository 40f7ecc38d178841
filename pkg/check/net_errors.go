package check

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
)

const idIBErrors = "net.ib_err"

// errorCounters are the counters of a port that stand still while its link is well. Only what they count from the first
// look on is told.
var errorCounters = []string{"link_downed", "link_error_recovery"}

// lookIBErrors counts errors, and compares the counts with the first look's.
func (h Host) lookIBErrors() []Finding {
	ports, err := h.ports()
	if err != nil {
		return []Finding{unread(idIBErrors, h.path(ibClass), err)}
	}
	now := readErrors(ports)
	return judgeErrors(h.Past.first(now), now, h.path(ibClass))
}

// readErrors returns the counts of all ports that have any, by the counter's path.
func readErrors(ports []port) map[string]int {
	counts := make(map[string]int)
	for _, p := range ports {
		for _, name := range errorCounters {
			path := filepath.Join(p.path, "counters", name)
			text, err := readText(path)
			if count, bad := strconv.Atoi(text); err == nil && bad == nil {
				counts[path] = count
			}
		}
	}
	return counts
}

// first returns the counts of the first look, which may be this one. A counter that appears later counts from its first
// value.
func (p *Past) first(now map[string]int) map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.errors == nil {
		p.errors = make(map[string]int)
	}
	for path, count := range now {
		if _, known := p.errors[path]; !known {
			p.errors[path] = count
		}
	}
	return maps.Clone(p.errors)
}

// judgeErrors tells of what has been counted since before.
func judgeErrors(before, now map[string]int, source string) []Finding {
	if len(now) == 0 {
		return []Finding{{ID: idIBErrors, Verdict: Skip, Source: source, Observed: "there are no counters of errors"}}
	}
	var wrong []Finding
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if more := now[path] - before[path]; more > 0 {
			wrong = append(wrong, Finding{
				ID: idIBErrors, Verdict: Warn, Class: Node, Source: path, Device: deviceOf(path),
				Observed: fmt.Sprintf("%s has counted %d since the first look", filepath.Base(path), more),
				Expected: "none",
				Hint:     "the link goes up and down: see to cable, transceiver and switch port before a long run",
			})
		}
	}
	if len(wrong) > 0 {
		return wrong
	}
	return []Finding{well(idIBErrors, source, "no link has gone down since the first look")}
}

// deviceOf names the device that a counter is of: DEVICE/ports/1/counters/NAME.
func deviceOf(path string) *Device {
	ports := filepath.Dir(filepath.Dir(filepath.Dir(path)))
	return &Device{Index: -1, Name: filepath.Base(filepath.Dir(ports))}
}
