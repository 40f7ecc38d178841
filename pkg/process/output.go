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

	"github.com/bringupd/bringupd/pkg/pause"
)

const (
	// longestLine is the maximum length of a line that is kept until it ends, in bytes. A longer line
	// is written to the log in pieces, one directly after the other.
	longestLine = 64 << 10
	// cutMark is written to the log after an incomplete line if a line of the other stream follows.
	cutMark = " [bringupd: the line goes on]"
	// keptLine is the maximum length of a line that is kept for LastLines, in bytes.
	keptLine = 1 << 10
	// restLimit is how much is still read from a pipe after the deadline: the maximum content of a
	// pipe.
	restLimit = 1 << 20
)

// output handles the two output streams of a child.
type output struct {
	streams   [2]*stream
	log       io.Writer    // may be nil
	passed    atomic.Int64 // number of pieces passed on
	printed   atomic.Int64 // number of bytes received
	latest    atomic.Int64 // arrival of the last byte, as the time since [epoch]; 0: none has arrived
	settled   latch        // opens when both readers have read what the child printed before its end
	delivered latch        // opens when both readers have delivered everything
	closed    latch        // opens when both readers have ended

	// logging is locked before mu. It is held while the log is written, which may take a while;
	// callers of [output.lines] do not wait for it.
	logging sync.Mutex
	text    []byte  // buffer for the log, reused; guarded by logging
	begun   *stream // the stream with an incomplete line at the end of the log, or nil; guarded by logging

	mu       sync.Mutex
	tail     [][]byte // last lines, newest last. The slices are reused, because a driver prints millions of lines
	kept     int      // number of lines in tail, counted from its end
	finishes bool     // [output.finish] was called; changes together with the readers' deadlines
}

// epoch is the origin of [output.latest], on the monotonic clock.
var epoch = time.Now()

// latch opens when release has been called as often as it has locks.
type latch struct {
	locks atomic.Int32
	open  chan struct{}
}

func (l *latch) init(locks int32) {
	l.open = make(chan struct{})
	l.locks.Store(locks)
}

func (l *latch) release() {
	if l.locks.Add(-1) == 0 {
		close(l.open)
	}
}

func newOutput(spec Spec) *output {
	out := &output{tail: make([][]byte, spec.KeepLines), log: spec.Log}
	out.settled.init(2)
	out.delivered.init(2)
	out.closed.init(2)
	for i, pass := range []io.Writer{spec.Stdout, spec.Stderr} {
		out.streams[i] = &stream{
			out: out, pass: pass, lines: Lines{Longest: longestLine}, settle: sync.OnceFunc(out.settled.release),
		}
	}
	return out
}

// open creates the pipes. It returns the child's ends, which the caller must close after the fork,
// even if open returns an error.
func (o *output) open() (theirs [2]*os.File, err error) {
	for i, s := range o.streams {
		if s.from, theirs[i], err = os.Pipe(); err != nil {
			return theirs, fmt.Errorf("cannot make a pipe for its output: %v", err)
		}
	}
	return theirs, nil
}

// drop closes the pipes of a child that was not started.
func (o *output) drop() {
	for _, s := range o.streams {
		s.from.Close()
	}
}

// start starts the readers.
func (o *output) start() {
	for _, s := range o.streams {
		go s.run()
	}
}

// lines returns the last lines, including incomplete ones.
func (o *output) lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var lines []string
	for _, line := range o.tail[len(o.tail)-o.kept:] {
		lines = append(lines, string(line))
	}
	for _, s := range o.streams {
		if begun := s.lines.begun; len(begun) > 0 {
			lines = append(lines, string(appendShown(nil, begun)))
		}
	}
	return lines[max(0, len(lines)-len(o.tail)):]
}

// hurry makes the readers read what is in the pipes now, by a deadline that has passed. If last is
// set, they stop delivering after that.
func (o *output) hurry(last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finishes = last
	for _, s := range o.streams {
		_ = s.from.SetReadDeadline(time.Now()) // fails if the reader has closed it already
	}
}

// hurried removes the deadline of one reader, and reports whether the reader must stop delivering.
func (o *output) hurried(s *stream) (last bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.finishes, s.from.SetReadDeadline(time.Time{})
}

// finish makes the readers stop after they have passed on what is in the pipes now. It gives up if
// no piece is passed on for a period of stall.
func (o *output) finish(stall time.Duration) error {
	o.hurry(true)
	for {
		before := o.passed.Load()
		if pause.Until(o.delivered.open, stall) {
			return errors.Join(o.streams[0].err, o.streams[1].err)
		}
		if o.passed.Load() == before {
			return fmt.Errorf("cannot pass on its last output: none was taken for %v", stall)
		}
	}
}

// release stops readers that still read, once no process is left that could print.
func (o *output) release(swept <-chan struct{}) {
	select {
	case <-o.closed.open:
		return
	case <-swept:
	}
	o.drop()
	pause.Until(o.closed.open, time.Second) // longer only if a write to Stdout or Stderr hangs
}

// stream reads one of a child's two pipes.
type stream struct {
	out    *output
	from   *os.File
	pass   io.Writer // may be nil
	lines  Lines     // guarded by out.mu
	err    error     // why passing on ended; read by others after out.delivered opens
	settle func()    // releases out.settled once
}

// run delivers the output. Afterwards, if the pipe must stay open, it reads and discards until the
// end of the pipe, so that the processes that write to it do not block.
func (s *stream) run() {
	defer s.out.closed.release()
	defer s.from.Close()
	listen := s.deliver()
	s.flush()
	s.out.delivered.release()
	if listen {
		_, _ = io.Copy(io.Discard, s.from)
	}
}

// deliver reads and delivers until the end of the pipe. After the last deadline it delivers only
// what is in the pipe. It reports whether the pipe must be kept open.
func (s *stream) deliver() (listen bool) {
	defer s.settle()
	buf := make([]byte, 64<<10)
	for {
		n, err := s.from.Read(buf)
		if n > 0 && !s.take(buf[:n]) {
			return false
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			last, listen := s.rest(buf)
			if last || !listen {
				return listen
			}
			s.settle()
		case err != nil:
			return false
		}
	}
}

// rest delivers what is in the pipe now. Processes that keep the pipe open may go on writing, hence
// the limit. It reports whether the reader must stop delivering, and whether the pipe must be kept
// open.
func (s *stream) rest(buf []byte) (last, listen bool) {
	last, err := s.out.hurried(s)
	raw, connErr := s.from.SyscallConn()
	if err != nil || connErr != nil {
		return last, false
	}
	for total := 0; total < restLimit; {
		n := 0
		if raw.Read(func(fd uintptr) bool { n, err = unix.Read(int(fd), buf); return true }) != nil {
			return last, false
		}
		if err != nil || n <= 0 {
			return last, err != nil // no more data for now, or the end
		}
		if !s.take(buf[:n]) {
			return last, false
		}
		total += n
	}
	return last, true
}

// take processes one piece of output. It returns false if the pipe must be closed because the
// reader of the child's output has gone: the child then gets the same error as without a daemon in
// between.
func (s *stream) take(b []byte) bool {
	s.out.printed.Add(int64(len(b)))
	s.out.latest.Store(int64(time.Since(epoch)))
	s.split(b)
	if s.pass == nil || s.err != nil {
		return true
	}
	s.err = PassOn(s.pass, b)
	s.out.passed.Add(1)
	return !errors.Is(s.err, unix.EPIPE)
}

// split cuts b into lines, for the tail and the log.
func (s *stream) split(b []byte) {
	s.log(func() { s.lines.Add(b, s.line) })
}

// flush completes an incomplete line.
func (s *stream) flush() {
	s.log(func() { s.lines.End(s.line) })
}

// log calls cut, which produces lines, and writes them to the log.
func (s *stream) log(cut func()) {
	o := s.out
	o.logging.Lock()
	defer o.logging.Unlock()
	o.text = o.text[:0]
	o.mu.Lock()
	cut()
	o.mu.Unlock()
	if o.log != nil && len(o.text) > 0 {
		_, _ = o.log.Write(o.text) // the log reports its errors itself
	}
}

// line handles one line, or a piece of one that goes on. The caller holds logging and mu.
func (s *stream) line(line []byte, goesOn bool) {
	o := s.out
	if most := len(o.tail); most > 0 {
		oldest := o.tail[0]
		copy(o.tail, o.tail[1:])
		o.tail[most-1] = appendShown(oldest[:0], line)
		o.kept = min(o.kept+1, most)
	}
	if o.begun != nil && o.begun != s {
		o.text = append(append(o.text, cutMark...), '\n')
	}
	o.text, o.begun = append(o.text, line...), s
	if !goesOn {
		o.text, o.begun = append(o.text, '\n'), nil
	}
}

// appendShown appends what a terminal would show of a line. Of a progress bar, which uses "\r" to
// overwrite itself, that is the last state. Text beyond keptLine is cut off.
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

// PassOn writes b to a writer. If that is a file in non-blocking mode, PassOn waits until it is
// writable: another process may have set the mode, because children share a terminal with the
// daemon's output.
func PassOn(to io.Writer, b []byte) error {
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
			return fmt.Errorf("cannot wait for its output to be taken: %v", err)
		}
	}
}
