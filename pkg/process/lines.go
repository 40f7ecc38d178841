package process

import "bytes"

// LineSplitter splits text that arrives in pieces into lines.
type LineSplitter struct {
	MaxLength   int    // maximum length in bytes: longer lines are delivered in pieces
	partialLine []byte // the incomplete line so far
}

// Add calls each with every line that is completed by data, without its newline, and with every
// piece of a line that exceeds the maximum length, with goesOn set. The slice is valid only during
// the call.
func (l *LineSplitter) Add(data []byte, each func(line []byte, goesOn bool)) {
	for len(data) > 0 {
		end, room := bytes.IndexByte(data, '\n'), l.MaxLength-len(l.partialLine)
		goesOn := end < 0 && len(data) > room || end > room
		switch {
		case goesOn:
			end = room
		case end < 0:
			l.partialLine = append(l.partialLine, data...)
			return
		}
		line := data[:end]
		if len(l.partialLine) > 0 {
			l.partialLine = append(l.partialLine, line...)
			line = l.partialLine
		}
		each(line, goesOn)
		l.partialLine, data = l.partialLine[:0], data[end:]
		if !goesOn {
			data = data[1:]
		}
	}
}

// Flush calls each with the incomplete line, if there is one, as if it were complete.
func (l *LineSplitter) Flush(each func(line []byte, goesOn bool)) {
	if len(l.partialLine) > 0 {
		each(l.partialLine, false)
		l.partialLine = nil
	}
}
