package request

import (
	"bytes"
	"io"
	"sync"
)

// longestLine is for how long a line without an end is held back for the sake of
// those of other nodes.
const longestLine = 64 << 10

// sink is where the commands' output goes: lines as a whole, where there are
// several nodes.
type sink struct {
	mu    sync.Mutex
	to    io.Writer
	lines map[int][]byte // by rank, what has no end yet, the prefix before it; guarded by mu
}

func newSink(to io.Writer) *sink { return &sink{to: to, lines: make(map[int][]byte)} }

// write passes on what a node has said.
func (s *sink) write(rank int, prefix string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if prefix == "" {
		_, err := s.to.Write(data)
		return err
	}
	var whole []byte
	line := s.lines[rank]
	for len(data) > 0 {
		if len(line) == 0 {
			line = append(line, prefix...)
		}
		end := bytes.IndexByte(data, '\n') + 1
		taken := end
		if end == 0 {
			taken = len(data)
		}
		line, data = append(line, data[:taken]...), data[taken:]
		if end == 0 && len(line) > longestLine {
			line, end = append(line, '\n'), 1
		}
		if end > 0 {
			whole, line = append(whole, line...), nil
		}
	}
	s.lines[rank] = line
	if len(whole) == 0 {
		return nil
	}
	_, err := s.to.Write(whole)
	return err
}

// flush passes on a line without an end.
func (s *sink) flush(rank int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.lines[rank]
	delete(s.lines, rank)
	if len(line) == 0 {
		return nil
	}
	_, err := s.to.Write(append(line, '\n'))
	return err
}
