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
}

func newMarker(to io.Writer, mark string) *marker {
	return &marker{to: to, mark: mark, lines: process.Lines{Longest: longestLine}}
}

// Write takes in what the node says.
func (m *marker) Write(data []byte) (int, error) {
	if m.mark == "" {
		return m.to.Write(data)
	}
	return len(data), m.passOn(func(each func([]byte, bool)) { m.lines.Add(data, each) })
}

// Close passes on a line without an end.
func (m *marker) Close() error { return m.passOn(m.lines.End) }

// passOn passes on the lines that are cut.
func (m *marker) passOn(cut func(each func(line []byte, goesOn bool))) error {
	var whole []byte
	cut(func(line []byte, _ bool) { whole = append(append(append(whole, m.mark...), line...), '\n') })
	if len(whole) == 0 {
		return nil
	}
	_, err := m.to.Write(whole)
	return err
}
