package process

import "bytes"

// Lines splits text that arrives in pieces into lines.
type Lines struct {
	Longest int    // maximum length in bytes: longer lines are delivered in pieces
	begun   []byte // the incomplete line so far
}

// Add calls each with every line that is completed by data, without its newline, and with every
// piece of a line that exceeds the maximum length, with goesOn set. The slice is valid only during
// the call.
func (l *Lines) Add(data []byte, each func(line []byte, goesOn bool)) {
	for len(data) > 0 {
		end, room := bytes.IndexByte(data, '\n'), l.Longest-len(l.begun)
		goesOn := end < 0 && len(data) > room || end > room
		switch {
		case goesOn:
			end = room
		case end < 0:
			l.begun = append(l.begun, data...)
			return
		}
		line := data[:end]
		if len(l.begun) > 0 {
			l.begun = append(l.begun, line...)
			line = l.begun
		}
		each(line, goesOn)
		l.begun, data = l.begun[:0], data[end:]
		if !goesOn {
			data = data[1:]
		}
	}
}

// End calls each with the incomplete line, if there is one, as if it were complete.
func (l *Lines) End(each func(line []byte, goesOn bool)) {
	if len(l.begun) > 0 {
		each(l.begun, false)
		l.begun = nil
	}
}
