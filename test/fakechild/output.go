package fakechild

import (
	"bytes"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// output processes the output of a child: it forwards it, logs it line by line and keeps the last
// lines, all before the write returns.
type output struct {
	keep int
	log  io.Writer

	// turn serialises writers, which may wait for the log or the reader. It is a channel because a
	// goroutine that waits for a mutex would keep the time of a synctest bubble from advancing.
	turn chan struct{}

	mu     sync.Mutex // guards the fields below
	lines  process.LineSplitter
	tail   []string
	begun  string // the current, incomplete line
	bytes  int64
	latest time.Time
	closed bool
}

func newOutput(spec process.Spec) *output {
	keep := spec.KeepLines
	if keep == 0 {
		keep = 20
	}
	return &output{
		keep: max(0, keep), log: spec.Log, turn: make(chan struct{}, 1),
		lines: process.LineSplitter{MaxLength: 64 << 10},
	}
}

// stream is one of a child's two streams.
type stream struct {
	out  *output
	pass io.Writer // may be nil
}

// Write implements io.Writer.
func (s stream) Write(data []byte) (int, error) {
	o := s.out
	o.turn <- struct{}{}
	defer func() { <-o.turn }()
	log, closed := o.take(data)
	o.write(log)
	if s.pass != nil && !closed { // otherwise the output has no reader any more
		if _, err := s.pass.Write(data); err != nil {
			return 0, syscall.EPIPE
		}
	}
	return len(data), nil
}

// take records output and returns the data for the log.
func (o *output) take(data []byte) (log []byte, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, true
	}
	o.bytes += int64(len(data))
	o.latest = time.Now()
	o.lines.Add(data, func(line []byte, goesOn bool) { log = o.line(log, line, goesOn) })
	o.begun = lastLine(o.begun, data)
	return log, false
}

// lastLine returns the incomplete line after data has arrived.
func lastLine(begun string, data []byte) string {
	if end := bytes.LastIndexByte(data, '\n'); end >= 0 {
		return string(data[end+1:])
	}
	return begun + string(data)
}

// keptLine is the maximum length of a kept line, as with a real child.
const keptLine = 1 << 10

func (o *output) line(log, line []byte, goesOn bool) []byte {
	shown := string(line)
	if len(shown) > keptLine {
		shown = shown[:keptLine] + "…"
	}
	o.tail = append(o.tail, shown)
	o.tail = o.tail[max(0, len(o.tail)-o.keep):]
	log = append(log, line...)
	if !goesOn {
		log = append(log, '\n')
	}
	return log
}

func (o *output) write(log []byte) {
	if o.log != nil && len(log) > 0 {
		_, _ = o.log.Write(log)
	}
}

// close completes the last line if it has no newline.
func (o *output) close() {
	var log []byte
	o.mu.Lock()
	o.lines.Flush(func(line []byte, goesOn bool) { log = o.line(log, line, goesOn) })
	o.begun, o.closed = "", true
	o.mu.Unlock()
	o.turn <- struct{}{}
	o.write(log)
	<-o.turn
}

func (o *output) lastLines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := append([]string(nil), o.tail...)
	if o.begun != "" {
		lines = append(lines, o.begun)
	}
	return lines[max(0, len(lines)-o.keep):]
}

func (o *output) count() (bytes int64, ago time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.latest.IsZero() {
		ago = time.Since(o.latest)
	}
	return o.bytes, ago
}
