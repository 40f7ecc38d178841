package exec

import (
	"io"

	"github.com/bringupd/bringupd/pkg/process"
)

// maxHeldLine is the maximum number of bytes of an unfinished line that are held back. They are
// held back so that lines of several nodes are not mixed.
const maxHeldLine = 64 << 10

// linePrefixer writes one node's output as complete lines, each with a prefix. Without a prefix, it
// writes the output unchanged.
type linePrefixer struct {
	dest   io.Writer // shared with other markers
	prefix string
	lines  process.LineSplitter
}

func newLinePrefixer(to io.Writer, mark string) *linePrefixer {
	return &linePrefixer{dest: to, prefix: mark, lines: process.LineSplitter{MaxLength: maxHeldLine}}
}

// Write accepts output of the node.
func (m *linePrefixer) Write(data []byte) (int, error) {
	if m.prefix == "" {
		return m.dest.Write(data)
	}
	return len(data), m.writeLines(func(each func([]byte, bool)) { m.lines.Add(data, each) })
}

// Close writes an unfinished line.
func (m *linePrefixer) Close() error { return m.writeLines(m.lines.Flush) }

// writeLines writes the lines that cut produces.
func (m *linePrefixer) writeLines(cut func(each func(line []byte, goesOn bool))) error {
	var whole []byte
	cut(func(line []byte, _ bool) { whole = append(append(append(whole, m.prefix...), line...), '\n') })
	if len(whole) == 0 {
		return nil
	}
	_, err := m.dest.Write(whole)
	return err
}
