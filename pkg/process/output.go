package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

const (
	// maxLineLength is the maximum length of a line that is kept until it ends, in bytes. A longer
	// line is written to the log in pieces.
	maxLineLength = 64 << 10
	// continuedMark is written to the log after each piece of such a line except the last.
	continuedMark = " [bringupd: the line continues]"
	// maxRecentLines is the number of last lines of each stream in which the error of a child is
	// searched for: stacks may follow it.
	maxRecentLines = 200
	// maxTailLine is the maximum length of a line that is kept for LastLines, in bytes.
	maxTailLine = 1 << 10
	// maxPipeContent is how much is still read from a pipe after the deadline: the maximum content of
	// a pipe.
	maxPipeContent = 1 << 20
	// endingTimeout is how long a child's pipe stays open without a reader of the child's output, for
	// the case that the run is being ended.
	endingTimeout = 500 * time.Millisecond
)

type childOutput struct {
	streams      [2]*outputStream
	log          io.Writer // may be nil
	ending       <-chan struct{}
	piecesPassed atomic.Int64 // number of pieces passed on
	bytesPrinted atomic.Int64 // number of bytes received
	// arrival of the last byte, as the time since [timeOrigin]; 0: none has arrived
	lastPrinted atomic.Int64
	// opens when both readers have read what the child printed before its end
	settled   latch
	delivered latch // opens when both readers have delivered everything
	closed    latch // opens when both readers have ended

	// logging is locked before mu. It is held while the log is written, which may take a while;
	// callers of [childOutput.lastLines] do not wait for it.
	logging   sync.Mutex
	logBuffer []byte // buffer for the log, reused; guarded by logging

	mu   sync.Mutex
	tail lineRing // last lines of both streams
	// [childOutput.finishReaders] was called; changes together with the readers' deadlines
	finishing bool
}

// timeOrigin is the origin of [childOutput.lastPrinted], on the monotonic clock.
var timeOrigin = time.Now()

// latch opens when release has been called as often as it has locks.
type latch struct {
	locks atomic.Int32
	open  chan struct{}
}

func (l *latch) setLocks(locks int32) {
	l.open = make(chan struct{})
	l.locks.Store(locks)
}

func (l *latch) release() {
	if l.locks.Add(-1) == 0 {
		close(l.open)
	}
}

func newChildOutput(spec Spec) *childOutput {
	out := &childOutput{tail: newLineRing(spec.KeepLines), log: spec.Log, ending: spec.Ending}
	out.settled.setLocks(2)
	out.delivered.setLocks(2)
	out.closed.setLocks(2)
	for i, pass := range []io.Writer{spec.Stdout, spec.Stderr} {
		out.streams[i] = &outputStream{
			out: out, writer: pass, lines: LineSplitter{MaxLength: maxLineLength},
			recent: newLineRing(min(spec.KeepLines, 1) * maxRecentLines),
			settle: sync.OnceFunc(out.settled.release),
		}
	}
	return out
}

// openPipes creates the pipes. It returns the child's ends, which the caller must close after the
// fork, even if open returns an error.
func (o *childOutput) openPipes() (ends [2]*os.File, err error) {
	for i, s := range o.streams {
		if s.pipe, ends[i], err = os.Pipe(); err != nil {
			return ends, fmt.Errorf("cannot make a pipe for its output: %v", err)
		}
	}
	return ends, nil
}

func (o *childOutput) closePipes() {
	for _, s := range o.streams {
		s.pipe.Close()
	}
}

// lastLines returns the last lines, including incomplete ones.
func (o *childOutput) lastLines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.tail.list(o.streams[:]...)
}

// recentLines returns the last lines of standard output and of standard error, including incomplete
// ones.
func (o *childOutput) recentLines() (out, err []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.streams[0].recent.list(o.streams[0]), o.streams[1].recent.list(o.streams[1])
}

// lineRing has the last lines of output. The slices are reused, because a driver prints millions of
// lines.
type lineRing struct {
	lines [][]byte
	next  int // index of the oldest line, which the next one replaces
	count int
}

func newLineRing(size int) lineRing { return lineRing{lines: make([][]byte, size)} }

func (r *lineRing) add(line []byte) {
	if len(r.lines) == 0 {
		return
	}
	r.lines[r.next] = appendVisible(r.lines[r.next][:0], line)
	r.next = (r.next + 1) % len(r.lines)
	r.count = min(r.count+1, len(r.lines))
}

// list returns the lines, the newest last, with the incomplete ones of streams.
func (r *lineRing) list(streams ...*outputStream) (lines []string) {
	for i := range r.count {
		lines = append(lines, string(r.lines[(r.next-r.count+i+len(r.lines))%len(r.lines)]))
	}
	for _, s := range streams {
		if begun := s.lines.partialLine; len(begun) > 0 {
			lines = append(lines, string(appendVisible(nil, begun)))
		}
	}
	return lines[max(0, len(lines)-len(r.lines)):]
}

// interruptReaders makes the readers read what is in the pipes now, by a deadline that has passed.
// If last is set, they stop delivering after that.
func (o *childOutput) interruptReaders(last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finishing = last
	for _, s := range o.streams {
		_ = s.pipe.SetReadDeadline(time.Now()) // fails if the reader has closed it already
	}
}

// resumeReader removes the deadline of one reader, and reports whether the reader must stop
// delivering.
func (o *childOutput) resumeReader(s *outputStream) (last bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.finishing, s.pipe.SetReadDeadline(time.Time{})
}

// finishReaders makes the readers stop after they have passed on what is in the pipes now. It gives
// up if no piece is passed on for a period of stall.
func (o *childOutput) finishReaders(stall time.Duration) error {
	o.interruptReaders(true)
	for {
		before := o.piecesPassed.Load()
		if ctxutil.AwaitDoneFor(o.delivered.open, stall) {
			return errors.Join(o.streams[0].err, o.streams[1].err)
		}
		if o.piecesPassed.Load() == before {
			return fmt.Errorf("cannot pass on its last output: none was accepted for %v", stall)
		}
	}
}

// closeWhenGone stops readers that still read, once no process is left that could print.
func (o *childOutput) closeWhenGone(swept <-chan struct{}) {
	select {
	case <-o.closed.open:
		return
	case <-swept:
	}
	o.closePipes()
	// longer only if a write to Stdout or Stderr hangs
	ctxutil.AwaitDoneFor(o.closed.open, time.Second)
}

type outputStream struct {
	out    *childOutput
	pipe   *os.File
	writer io.Writer    // may be nil
	lines  LineSplitter // guarded by out.mu
	recent lineRing     // its last lines; guarded by out.mu
	err    error        // why passing on ended; read by others after out.delivered opens
	settle func()       // releases out.settled once
}

// readUntilEnd delivers the output. Afterwards, if the pipe must stay open, it reads and discards
// until the end of the pipe, so that the processes that write to it do not block.
func (s *outputStream) readUntilEnd() {
	defer s.out.closed.release()
	defer s.pipe.Close()
	listen := s.deliverOutput()
	s.writeLog(func() { s.lines.Flush(s.handleLine) }) // an incomplete line
	s.out.delivered.release()
	if listen {
		_, _ = io.Copy(io.Discard, s.pipe)
	}
}

// deliverOutput reads and delivers until the end of the pipe. After the last deadline it delivers
// only what is in the pipe. It reports whether the pipe must be kept open.
func (s *outputStream) deliverOutput() (listen bool) {
	defer s.settle()
	buf := make([]byte, 64<<10)
	for {
		n, err := s.pipe.Read(buf)
		if n > 0 && !s.handlePiece(buf[:n]) {
			return false
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			last, listen := s.deliverRest(buf)
			if last || !listen {
				return listen
			}
			s.settle()
		case err != nil:
			return false
		}
	}
}

// deliverRest delivers what is in the pipe now. Processes that keep the pipe open may go on
// writing, hence the limit. It reports whether the reader must stop delivering, and whether the
// pipe must be kept open.
func (s *outputStream) deliverRest(buf []byte) (last, listen bool) {
	last, err := s.out.resumeReader(s)
	raw, connErr := s.pipe.SyscallConn()
	if err != nil || connErr != nil {
		return last, false
	}
	for total := 0; total < maxPipeContent; {
		n := 0
		if raw.Read(func(fd uintptr) bool { n, err = unix.Read(int(fd), buf); return true }) != nil {
			return last, false
		}
		if err != nil || n <= 0 {
			return last, err != nil // no more data for now, or the end
		}
		if !s.handlePiece(buf[:n]) {
			return last, false
		}
		total += n
	}
	return last, true
}

// handlePiece processes one piece of output. It returns false if the pipe must be closed because
// the reader of the child's output has gone: the child then gets the same error as without a daemon
// in between. If the run is being ended, the output is only logged from then on.
func (s *outputStream) handlePiece(b []byte) bool {
	s.out.bytesPrinted.Add(int64(len(b)))
	s.out.lastPrinted.Store(int64(time.Since(timeOrigin)))
	s.writeLog(func() { s.lines.Add(b, s.handleLine) })
	if s.writer == nil || s.err != nil {
		return true
	}
	s.err = WriteRetrying(s.writer, b)
	s.out.piecesPassed.Add(1)
	isEnding := func() bool { return ctxutil.AwaitDoneFor(s.out.ending, endingTimeout) }
	return !errors.Is(s.err, unix.EPIPE) || s.out.ending != nil && isEnding()
}

// writeLog calls cut, which cuts text into lines for the tail and the log, and writes the log.
func (s *outputStream) writeLog(cut func()) {
	o := s.out
	o.logging.Lock()
	defer o.logging.Unlock()
	o.logBuffer = o.logBuffer[:0]
	o.mu.Lock()
	cut()
	o.mu.Unlock()
	if o.log != nil && len(o.logBuffer) > 0 {
		_, _ = o.log.Write(o.logBuffer) // the log reports its errors itself
	}
}

// handleLine handles one line, or a piece of one that goes on. The caller holds logging and mu.
func (s *outputStream) handleLine(line []byte, goesOn bool) {
	o := s.out
	o.tail.add(line)
	s.recent.add(line)
	o.logBuffer = append(o.logBuffer, line...)
	if goesOn {
		o.logBuffer = append(o.logBuffer, continuedMark...)
	}
	o.logBuffer = append(o.logBuffer, '\n')
}

// appendVisible appends what a terminal would show of a line. Of a progress bar, which uses "\r" to
// overwrite itself, that is the last state. Text beyond maxTailLine is cut off.
func appendVisible(to, line []byte) []byte {
	line = bytes.TrimRight(line, "\r\n")
	if back := bytes.LastIndexByte(line, '\r'); back >= 0 {
		line = line[back+1:]
	}
	if len(line) <= maxTailLine {
		return append(to, line...)
	}
	end := maxTailLine
	for end > maxTailLine-utf8.UTFMax && !utf8.RuneStart(line[end]) {
		end--
	}
	return append(append(to, line[:end]...), "…"...)
}

// WriteRetrying writes b to a writer. If that is a file in non-blocking mode, WriteRetrying waits
// until it is writable: another process may have set the mode, because children share a terminal
// with the daemon's output.
func WriteRetrying(to io.Writer, b []byte) error {
	for {
		n, err := to.Write(b)
		file, isFile := to.(*os.File)
		if !isFile || !errors.Is(err, unix.EAGAIN) {
			if err != nil {
				return fmt.Errorf("cannot pass on its output: %w", err)
			}
			return nil
		}
		b = b[n:]
		fds := []unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLOUT}}
		if _, err := unix.Poll(fds, 1000); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("cannot wait for its output to be accepted: %v", err)
		}
	}
}

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

// Partial returns the incomplete line so far. The slice is valid until the next call of a method.
func (l *LineSplitter) Partial() []byte { return l.partialLine }

// Flush calls each with the incomplete line, if there is one, as if it were complete.
func (l *LineSplitter) Flush(each func(line []byte, goesOn bool)) {
	if len(l.partialLine) > 0 {
		each(l.partialLine, false)
		l.partialLine = nil
	}
}
