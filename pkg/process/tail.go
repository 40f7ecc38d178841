package process

import (
	"bytes"
	"unicode/utf8"
)

// keptLine is how much of a line the tail keeps, in bytes.
const keptLine = 1 << 10

// tail keeps the last lines, in order. Its slots are used again: a driver prints millions of lines.
type tail struct {
	slots [][]byte
	next  int
	full  bool
}

func newTail(lines int) *tail {
	return &tail{slots: make([][]byte, lines)}
}

func (t *tail) add(line []byte) {
	if len(t.slots) == 0 {
		return
	}
	t.slots[t.next] = appendShown(t.slots[t.next][:0], line)
	if t.next++; t.next == len(t.slots) {
		t.next, t.full = 0, true
	}
}

func (t *tail) lines() []string {
	var out []string
	if t.full {
		for _, slot := range t.slots[t.next:] {
			out = append(out, string(slot))
		}
	}
	for _, slot := range t.slots[:t.next] {
		out = append(out, string(slot))
	}
	return out
}

// appendShown appends what a terminal would show of a line: of a progress bar, which goes back with "\r" to write over
// itself, the last state. What is over keptLine is cut off.
func appendShown(to, line []byte) []byte {
	line = bytes.TrimRight(line, "\r\n")
	if back := bytes.LastIndexByte(line, '\r'); back >= 0 {
		line = line[back+1:]
	}
	if len(line) <= keptLine {
		return append(to, line...)
	}
	end := keptLine
	for end > keptLine-utf8.UTFMax && !utf8.RuneStart(line[end]) {
		end--
	}
	return append(append(to, line[:end]...), "…"...)
}
