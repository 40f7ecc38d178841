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
	// longestLine is how much of a line is kept until it ends: a longer one is logged in
	// pieces, which stand behind one another.
	longestLine = 64 << 10
	// cutMark ends in the log a piece of a line that the other stream has come between.
	cutMark = " [bringupd: the line goes on]"
	// keptLine is how much of a line is kept for LastLines, in bytes.
	keptLine = 1 << 10
	// restLimit is how much is still read from a pipe after the time for it is over: all that can be in it.
	restLimit = 1 << 20
)

// output is what becomes of a child's two streams.
type output struct {
	streams   [2]*stream
	log       io.Writer    // may be nil
	passed    atomic.Int64 // pieces that were passed on
	printed   atomic.Int64 // bytes that have come
	latest    atomic.Int64 // when the last of them came, by epoch's clock; 0: none has
	settled   latch        // both readers have what the child printed before its end
	delivered latch        // both readers have delivered what there was
	closed    latch        // both readers have ended

	// logging is locked before mu, and while the log is written, which may take a while:
	// who asks for the last lines does not wait for it.
	logging sync.Mutex
	text    []byte  // for the log: its memory is used again; guarded by logging
	begun   *stream // whose line the log ends within; guarded by logging

	mu       sync.Mutex
	tail     [][]byte // the last lines, the newest last. Their memory is used again: a driver prints millions
	kept     int      // how many of them there are, which are those at the end
	finishes bool     // finish was called; it and the readers' deadlines change together
}

// epoch is what times are counted from, on the clock that nobody sets.
var epoch = time.Now()

// latch opens when it was released as often as it has locks.
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

// open makes the pipes. The ends that it returns are the child's, and to be closed after the fork, also those that it
// returns with an error.
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

// lines returns the last lines, those that have no end yet too.
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

// hurry has the readers take what is in the pipes now, and tell; where it is the last time, that is the end of their
// work.
func (o *output) hurry(last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finishes = last
	for _, s := range o.streams {
		_ = s.from.SetReadDeadline(time.Now()) // fails where the reader has closed it already
	}
}

// hurried takes back the deadline of one reader, and reports whether its work is over.
func (o *output) hurried(s *stream) (last bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.finishes, s.from.SetReadDeadline(time.Time{})
}

// finish ends the readers' work, when they have passed on what is in the pipes now: as long as some is in each time of
// stall.
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

// release ends readers that still listen, once nobody is left who could print.
func (o *output) release(swept <-chan struct{}) {
	select {
	case <-o.closed.open:
		return
	case <-swept:
	}
	o.drop()
	pause.Until(o.closed.open, time.Second) // longer only where a write to the taker hangs
}

// stream reads one of a child's two pipes.
type stream struct {
	out    *output
	from   *os.File
	pass   io.Writer // may be nil
	lines  Lines     // under out.mu
	err    error     // why passing on ended; others read it once all is delivered
	settle func()    // releases out.settled, the first time
}

// run delivers what comes, and then reads to the end of the pipe, for the sake of those who write.
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

// deliver reads to the end of the pipe, or to the last deadline and then what is in it. It returns whether the pipe is to
// be kept open.
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

// rest delivers what is in the pipe now. Whoever keeps the pipe open may go on writing, hence the limit. It returns
// whether that was the last of our work, and whether the pipe is to be kept open.
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
			return last, err != nil // nothing more for now, or the end
		}
		if !s.take(buf[:n]) {
			return last, false
		}
		total += n
	}
	return last, true
}

// take handles one piece of output. It returns false where the child's output has nowhere to go any more: then the pipe
// is to be closed, so that the child sees what it would without us between.
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

// flush makes a line of what has no end.
func (s *stream) flush() {
	s.log(func() { s.lines.End(s.line) })
}

// log writes to the log what the lines of cut are.
func (s *stream) log(cut func()) {
	o := s.out
	o.logging.Lock()
	defer o.logging.Unlock()
	o.text = o.text[:0]
	o.mu.Lock()
	cut()
	o.mu.Unlock()
	if o.log != nil && len(o.text) > 0 {
		_, _ = o.log.Write(o.text) // who gave it knows how it fares
	}
}

// line takes one line, or a piece of one that goes on; logging and mu are held.
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

// PassOn writes b, waiting where to is a file that another process made non-blocking: a terminal's standard input,
// which children have, shares that setting with our output.
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
