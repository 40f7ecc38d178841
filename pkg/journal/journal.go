// Package journal appends lines to a file that may be slow, or refuse data for a while, without
// blocking the writers.
package journal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

const (
	// journalLimit is the maximum size in bytes of the lines that a journal buffers.
	journalLimit = 1 << 20
	// journalPace is the interval at which lines are collected into one write: a line may be that
	// late, and a start-up of a few seconds needs no write. Each journal waits up to a quarter longer,
	// so that a thousand nodes do not write at once.
	journalPace = 5 * time.Second
	// journalRetry is the retry interval for a file that has refused data, while a caller waits.
	journalRetry = 50 * time.Millisecond
)

// Journal appends lines to a file of the run directory. Its callers do not wait for the file
// system, unless Patience is set: a goroutine collects and writes the lines. Data that the file
// system does not accept is kept, and offered again with the next lines; lines beyond the limit are
// dropped, and counted.
type Journal struct {
	// Dropped returns the line that reports how many lines are missing before it; {"dropped":3} by
	// default. It must not be changed once the journal is open.
	Dropped func(lines int) string
	// Eager offers each line to the file immediately. It must not be changed once the journal is
	// open.
	Eager bool
	// Patience is how long the file may accept nothing before lines are dropped: as long as it accepts
	// something, Write waits for room. With 0 Write never waits. It must not be changed once the
	// journal is open.
	Patience time.Duration

	mu      sync.Mutex
	pending []byte        // guarded by mu
	rest    []byte        // data of the last write that the file has not accepted; guarded by mu
	dropped int           // number of dropped lines, guarded by mu
	parted  bool          // the last dropped piece has no line end; guarded by mu
	torn    bool          // the last piece in rest ends within a line; guarded by mu
	since   time.Time     // when the file last accepted data, or got some after an idle time; guarded by mu
	room    chan struct{} // closed when pending is taken; nil if no caller waits, guarded by mu
	file    io.WriteCloser
	closed  error         // error of closing the file; set before ended is closed
	taken   chan struct{} // closed when nothing is left to write; nil if no caller waits, guarded by mu

	flush chan struct{} // buffered by one: "write now"
	ended chan struct{} // closed when the writing goroutine has ended
	life  context.Context
	stop  context.CancelFunc // cancels life; called by Close
}

// New returns a journal without a file: it keeps its lines until Open. Close must be called.
func New() *Journal {
	j := &Journal{flush: make(chan struct{}, 1), ended: make(chan struct{})}
	j.Dropped = func(lines int) string { return fmt.Sprintf("{\"dropped\":%d}", lines) }
	j.life, j.stop = context.WithCancel(context.Background())
	return j
}

// Open makes the journal write to file. It may be called once.
func (j *Journal) Open(file io.WriteCloser) {
	j.mu.Lock()
	j.file, j.since = file, time.Now()
	j.mu.Unlock()
	go j.run()
}

// Write appends whole lines, or a piece of a line that continues in the next Write. It never fails,
// and waits no longer than Patience.
func (j *Journal) Write(lines []byte) (int, error) {
	if j.Eager {
		defer func() { _ = j.Sync() }()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.rest)+len(j.pending) == 0 {
		j.since = time.Now() // the file is offered data from now on
	}
	for len(j.pending)+len(lines) > journalLimit || j.Patience > 0 && j.missing() > 0 {
		if len(lines) > journalLimit || !j.awaitRoom() {
			j.dropped += bytes.Count(lines, []byte{'\n'})
			j.parted = !bytes.HasSuffix(lines, []byte{'\n'})
			return len(lines), nil
		}
	}
	j.pending = append(j.pending, lines...)
	return len(lines), nil
}

// missing returns the number of dropped lines, including partial ones. mu must be held.
func (j *Journal) missing() int {
	if j.parted {
		return j.dropped + 1
	}
	return j.dropped
}

// awaitRoom waits a little for the file to accept pending data, and returns false if waiting is
// useless. mu must be held; it is released meanwhile.
func (j *Journal) awaitRoom() bool {
	left := j.Patience - time.Since(j.since)
	if left <= 0 || j.file == nil || j.life.Err() != nil {
		return false
	}
	if j.room == nil {
		j.room = make(chan struct{})
	}
	room := j.room
	j.mu.Unlock()
	defer j.mu.Lock()
	_ = j.Sync()
	wait := time.NewTimer(min(left, journalRetry))
	defer wait.Stop()
	select {
	case <-room:
	case <-wait.C:
	case <-j.life.Done():
	}
	return true
}

// Sync requests that pending lines are written soon. It does not wait.
func (j *Journal) Sync() error {
	pause.Ring(j.flush)
	return nil
}

func (j *Journal) run() {
	defer close(j.ended)
	tick := time.NewTicker(journalPace + rand.N(journalPace/4))
	defer tick.Stop()
	for {
		select {
		case <-j.life.Done():
			j.drain()
			j.closed = j.file.Close()
			return
		case <-tick.C:
		case <-j.flush:
		}
		j.drain()
	}
}

// drain writes lines until none are left or a write fails.
func (j *Journal) drain() {
	for j.next() {
		n, err := j.file.Write(j.rest)
		j.mu.Lock()
		j.rest = j.rest[n:]
		if n > 0 {
			j.since = time.Now()
		}
		j.mu.Unlock()
		if err != nil {
			return // the daemon reports it when it fails to publish records there
		}
	}
}

// next moves pending lines to rest if rest is empty, and reports whether rest has data. No other
// goroutine changes rest.
func (j *Journal) next() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.rest) > 0 {
		return true
	}
	// All pending lines become the next write, which makes room for callers of Write.
	j.rest, j.pending, j.since = j.pending, nil, time.Now()
	if j.room != nil {
		close(j.room)
		j.room = nil
	}
	if len(j.rest) > 0 {
		j.torn = j.rest[len(j.rest)-1] != '\n'
	}
	// The line about dropped lines follows the lines before them.
	if missing := j.missing(); missing > 0 {
		if j.torn {
			j.rest = append(j.rest, '\n')
		}
		j.rest = append(append(j.rest, j.Dropped(missing)...), '\n')
		j.dropped, j.parted, j.torn = 0, false, false
	}
	if len(j.rest) == 0 && j.taken != nil {
		close(j.taken)
		j.taken = nil
	}
	return len(j.rest) > 0
}

// Flush requests that all lines are written, and waits until they are or ctx ends. The journal must
// be open and not closed.
func (j *Journal) Flush(ctx context.Context) error {
	j.mu.Lock()
	if j.taken == nil {
		j.taken = make(chan struct{})
	}
	taken := j.taken
	j.mu.Unlock()
	_ = j.Sync()
	select {
	case <-taken:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot write all of a journal: %w", context.Cause(ctx))
	}
}

// Left returns the number of lines that have not been written.
func (j *Journal) Left() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return bytes.Count(j.rest, []byte{'\n'}) + bytes.Count(j.pending, []byte{'\n'}) + j.missing()
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
	case <-j.ended:
		return j.closed
	case <-ctx.Done():
		return fmt.Errorf("cannot finish a journal: the share has not taken it: %w", context.Cause(ctx))
	}
}
