package files

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

const (
	// maxBuffered is the maximum size in bytes of the lines that a journal buffers.
	maxBuffered = 1 << 20
	// writeInterval is the interval at which lines are collected into one write: a line may be that
	// late, and a start-up of a few seconds needs no write. Each journal waits up to a quarter longer,
	// so that a thousand nodes do not write at once.
	writeInterval = 5 * time.Second
	// retryInterval is the retry interval for a file that has refused data, while a caller waits.
	retryInterval = 50 * time.Millisecond
)

// Journal appends lines to a file of the run directory. Its callers do not wait for the file
// system, unless StallTimeout is set: a goroutine collects and writes the lines. Data that the file
// system does not accept is kept, and offered again with the next lines; lines beyond the limit are
// dropped, and counted.
type Journal struct {
	JournalOptions
	mu      sync.Mutex
	pending []byte // guarded by mu
	// data of the last write that the file has not accepted; guarded by mu
	unwritten        []byte
	unwrittenPartial bool         // the last piece in unwritten ends within a line; guarded by mu
	dropped          droppedLines // lines dropped since the last write; guarded by mu
	// when the file last accepted data, or got some after an idle time; guarded by mu
	lastAccepted time.Time
	// closed when pending is taken; nil if no caller waits, guarded by mu
	roomFreed chan struct{}
	file      io.WriteCloser
	closeErr  error // error of closing the file; set before finished is closed
	// closed when nothing is left to write; nil if no caller waits, guarded by mu
	allWritten chan struct{}

	writeNow chan struct{} // buffered by one: "write now"
	finished chan struct{} // closed when the writing goroutine has ended
	lifetime context.Context
	stop     context.CancelFunc // cancels lifetime; called by Close
}

// JournalOptions are the options of a journal. They must not be changed once it is open.
type JournalOptions struct {
	// DroppedLine returns the line that reports how many lines are missing before it; {"dropped":3} by
	// default.
	DroppedLine func(lines int) string
	// WriteImmediately offers each line to the file immediately.
	WriteImmediately bool
	// StallTimeout is how long the file may accept nothing before lines are dropped: as long as it
	// accepts something, Write waits for room. With 0 Write never waits.
	StallTimeout time.Duration
}

type droppedLines struct {
	ends    int  // number of line ends
	partial bool // the last dropped piece has no line end
}

// count returns the number of lines, including a partial one.
func (d droppedLines) count() int {
	if d.partial {
		return d.ends + 1
	}
	return d.ends
}

// NewJournal returns a journal without a file: it keeps its lines until Open. Close must be called.
func NewJournal() *Journal {
	j := &Journal{writeNow: make(chan struct{}, 1), finished: make(chan struct{})}
	j.DroppedLine = func(lines int) string { return fmt.Sprintf("{\"dropped\":%d}", lines) }
	j.lifetime, j.stop = context.WithCancel(context.Background())
	return j
}

// Open makes the journal write to file. It may be called once.
func (j *Journal) Open(file io.WriteCloser) {
	j.mu.Lock()
	j.file, j.lastAccepted = file, time.Now()
	j.mu.Unlock()
	go j.writeLoop()
}

// Write appends whole lines, or a piece of a line that continues in the next Write. It never fails,
// and waits no longer than StallTimeout.
func (j *Journal) Write(lines []byte) (int, error) {
	if j.WriteImmediately {
		defer func() { _ = j.Sync() }()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.unwritten)+len(j.pending) == 0 {
		j.lastAccepted = time.Now() // the file is offered data from now on
	}
	for len(j.pending)+len(lines) > maxBuffered || j.StallTimeout > 0 && j.dropped.count() > 0 {
		if len(lines) > maxBuffered || !j.awaitRoom() {
			j.dropped.ends += bytes.Count(lines, []byte{'\n'})
			j.dropped.partial = !bytes.HasSuffix(lines, []byte{'\n'})
			return len(lines), nil
		}
	}
	j.pending = append(j.pending, lines...)
	return len(lines), nil
}

// awaitRoom waits a little for the file to accept pending data, and returns false if waiting is
// useless. mu must be held; it is released meanwhile.
func (j *Journal) awaitRoom() bool {
	left := j.StallTimeout - time.Since(j.lastAccepted)
	if left <= 0 || j.file == nil || j.lifetime.Err() != nil {
		return false
	}
	if j.roomFreed == nil {
		j.roomFreed = make(chan struct{})
	}
	room := j.roomFreed
	j.mu.Unlock()
	defer j.mu.Lock()
	_ = j.Sync()
	wait := time.NewTimer(min(left, retryInterval))
	defer wait.Stop()
	select {
	case <-room:
	case <-wait.C:
	case <-j.lifetime.Done():
	}
	return true
}

// Sync requests that pending lines are written soon. It does not wait.
func (j *Journal) Sync() error {
	ctxutil.NotifyChannel(j.writeNow)
	return nil
}

func (j *Journal) writeLoop() {
	defer close(j.finished)
	tick := time.NewTicker(writeInterval + rand.N(writeInterval/4))
	defer tick.Stop()
	for {
		select {
		case <-j.lifetime.Done():
			j.writePending()
			j.closeErr = j.file.Close()
			return
		case <-tick.C:
		case <-j.writeNow:
		}
		j.writePending()
	}
}

// writePending writes lines until none are left or a write fails.
func (j *Journal) writePending() {
	for j.nextWrite() {
		n, err := j.file.Write(j.unwritten)
		j.mu.Lock()
		j.unwritten = j.unwritten[n:]
		if n > 0 {
			j.lastAccepted = time.Now()
		}
		j.mu.Unlock()
		if err != nil {
			return // the daemon reports it when it fails to publish records there
		}
	}
}

// nextWrite moves pending lines to unwritten if that is empty, and reports whether it has data
// then. No other goroutine changes unwritten.
func (j *Journal) nextWrite() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.unwritten) > 0 {
		return true
	}
	// All pending lines become the next write, which makes room for callers of Write.
	j.unwritten, j.pending, j.lastAccepted = j.pending, nil, time.Now()
	if j.roomFreed != nil {
		close(j.roomFreed)
		j.roomFreed = nil
	}
	if len(j.unwritten) > 0 {
		j.unwrittenPartial = j.unwritten[len(j.unwritten)-1] != '\n'
	}
	// The line about dropped lines follows the lines before them.
	if missing := j.dropped.count(); missing > 0 {
		if j.unwrittenPartial {
			j.unwritten = append(j.unwritten, '\n')
		}
		j.unwritten = append(append(j.unwritten, j.DroppedLine(missing)...), '\n')
		j.dropped, j.unwrittenPartial = droppedLines{}, false
	}
	if len(j.unwritten) == 0 && j.allWritten != nil {
		close(j.allWritten)
		j.allWritten = nil
	}
	return len(j.unwritten) > 0
}

// Flush requests that all lines are written, and waits until they are or ctx ends. The journal must
// be open and not closed.
func (j *Journal) Flush(ctx context.Context) error {
	j.mu.Lock()
	if j.allWritten == nil {
		j.allWritten = make(chan struct{})
	}
	taken := j.allWritten
	j.mu.Unlock()
	_ = j.Sync()
	select {
	case <-taken:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot write the complete journal: %w", context.Cause(ctx))
	}
}

// UnwrittenLines returns the number of lines that have not been written.
func (j *Journal) UnwrittenLines() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return bytes.Count(j.unwritten, []byte{'\n'}) + bytes.Count(j.pending, []byte{'\n'}) + j.dropped.count()
}

// Close requests that pending lines are written and the file is closed, and waits until they are or
// ctx ends. After that, a write that hangs may still continue.
func (j *Journal) Close(ctx context.Context) error {
	j.stop()
	j.mu.Lock()
	opened := j.file != nil
	j.mu.Unlock()
	if !opened {
		return nil
	}
	select {
	case <-j.finished:
		return j.closeErr
	case <-ctx.Done():
		return fmt.Errorf("cannot finish a journal: the shared file system has not accepted it: %w", context.Cause(ctx))
	}
}
