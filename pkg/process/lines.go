package process

import "bytes"

// Lines cuts text that comes in pieces into lines.
type Lines struct {
	Longest int    // in bytes: a longer line comes in pieces
	begun   []byte // the line that has not ended
}

// Add calls each with every line that ends in data, without its newline, and
// with every piece of one that is too long and goes on. The line may be used
// during the call alone.
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

// End calls each with the line that has not ended, if there is one, as if it did
// now.
func (l *Lines) End(each func(line []byte, goesOn bool)) {
	if len(l.begun) > 0 {
		each(l.begun, false)
		l.begun = nil
	}
}
