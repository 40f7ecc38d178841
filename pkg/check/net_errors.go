package check

import (
	"fmt"
	"path/filepath"
	"strconv"
)

const idIBErrors = "net.ib_err"

// errorCounters are the counters of a port that stand still while its link is well. Only what they count from the first
// look on is told.
var errorCounters = []string{"link_downed", "link_error_recovery"}

// lookIBErrors compares the counts of errors with the first look's.
func (h Host) lookIBErrors(s *Sheet) {
	ports, err := h.ports()
	if err != nil {
		s.unread(err)
		return
	}
	source, counted := s.Each.Source, false
	for _, p := range ports {
		for _, name := range errorCounters {
			path := filepath.Join(p.path, "counters", name)
			text, err := readText(path)
			count, bad := strconv.Atoi(text)
			if err != nil || bad != nil {
				continue
			}
			counted = true
			if more := count - h.Past.first(path, count); more > 0 {
				s.Each.Source, s.Each.Device = path, &Device{Index: -1, Name: p.device}
				s.Warn(Node, fmt.Sprintf("%s has counted %d since the first look", name, more), "none",
					"the link goes up and down: see to cable, transceiver and switch port before a long run")
			}
		}
	}
	s.Each.Source, s.Each.Device = source, nil
	switch {
	case !counted:
		s.Skip("there are no counters of errors")
	case len(s.Found) == 0:
		s.Pass("no link has gone down since the first look")
	}
}

// first returns the count of the first look at a counter, which may be this one.
func (p *Past) first(path string, count int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.errors == nil {
		p.errors = make(map[string]int)
	}
	if _, known := p.errors[path]; !known {
		p.errors[path] = count
	}
	return p.errors[path]
}
