package request

import (
	"io"

	"github.com/bringupd/bringupd/pkg/process"
)

// longestLine is how many bytes of a line without an end are held back for the sake
// of those of other nodes.
const longestLine = 64 << 10

// marker passes on what one node says as whole lines, each with the node's mark
// before it; without a mark all of it as it comes.
type marker struct {
	to    io.Writer // which others write to, too
	mark  string
	lines process.Lines
	whole []byte // lines that are to be passed on
}

func newMarker(to io.Writer, mark string) *marker {
	return &marker{to: to, mark: mark, lines: process.Lines{Longest: longestLine}}
}

func (m *marker) add(line []byte, _ bool) {
	m.whole = append(append(append(m.whole, m.mark...), line...), '\n')
}

// Write takes in what the node says.
func (m *marker) Write(data []byte) (int, error) {
	if m.mark == "" {
		return m.to.Write(data)
	}
	m.lines.Add(data, m.add)
	return len(data), m.passOn()
}

// Close passes on a line without an end.
func (m *marker) Close() error {
	m.lines.End(m.add)
	return m.passOn()
}

func (m *marker) passOn() error {
	if len(m.whole) == 0 {
		return nil
	}
	_, err := m.to.Write(m.whole)
	m.whole = m.whole[:0]
	return err
}
