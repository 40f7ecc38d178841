package request

import (
	"io"

	"github.com/bringupd/bringupd/pkg/process"
)

// longestLine is the maximum number of bytes of an unfinished line that are held back. They are
// held back so that lines of several nodes are not mixed.
const longestLine = 64 << 10

// marker writes one node's output as complete lines, each with a prefix. Without a prefix, it
// writes the output unchanged.
type marker struct {
	to    io.Writer // shared with other markers
	mark  string
	lines process.Lines
}

func newMarker(to io.Writer, mark string) *marker {
	return &marker{to: to, mark: mark, lines: process.Lines{Longest: longestLine}}
}

// Write accepts output of the node.
func (m *marker) Write(data []byte) (int, error) {
	if m.mark == "" {
		return m.to.Write(data)
	}
	return len(data), m.passOn(func(each func([]byte, bool)) { m.lines.Add(data, each) })
}

// Close writes an unfinished line.
func (m *marker) Close() error { return m.passOn(m.lines.End) }

// passOn writes the lines that cut produces.
func (m *marker) passOn(cut func(each func(line []byte, goesOn bool))) error {
	var whole []byte
	cut(func(line []byte, _ bool) { whole = append(append(append(whole, m.mark...), line...), '\n') })
	if len(whole) == 0 {
		return nil
	}
	_, err := m.to.Write(whole)
	return err
}
