// Package journal appends lines to a file that may be slow, or not take them for a while, without making
// those who write wait.
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
	// journalLimit bounds in bytes what a journal keeps while the share does
	// not take it.
	journalLimit = 1 << 20
	// journalPace gathers lines, so that a busy while costs one write: a line is
	// at most so late, and a bring-up of a few seconds costs none. Each journal
	// is up to a quarter slower, or a thousand nodes would write at once.
	journalPace = 5 * time.Second
	// journalRetry is how often a file that has refused is asked again while
	// somebody waits for it.
	journalRetry = 50 * time.Millisecond
)

// Journal appends lines to a file of the run directory without making its
// callers wait for the share, unless they have patience: lines are gathered and written by a goroutine
// of its own. What the share does not take is kept, and offered again with what
// comes next; what is more than a journal keeps is dropped, with a count.
type Journal struct {
	// Dropped is the line that tells how many are missing before it: {"dropped":3}
	// where nothing else is said. It is not to be changed once the journal is open.
	Dropped func(lines int) string
	// Eager has each line offered to the file at once, for whom it must not be
	// late. It is not to be changed either.
	Eager bool
	// Patience is for how long the file may take nothing until lines are dropped:
	// as long as it takes something, Write waits where there is no room. 0: Write
	// never waits. It is not to be changed either.
	Patience time.Duration

	mu      sync.Mutex
	pending []byte        // guarded by mu
	rest    []byte        // what the file was given last and has not taken; guarded by mu
	dropped int           // lines, guarded by mu
	parted  bool          // what was dropped last has no end; guarded by mu
	torn    bool          // what was taken into rest last ends within a line; guarded by mu
	since   time.Time     // when the file has taken something last, or was given it after a rest; guarded by mu
	room    chan struct{} // closed when pending is taken; nil where nobody waits, guarded by mu
	file    io.WriteCloser
	closed  error         // what closing the file has said; set before ended is closed
	taken   chan struct{} // closed when nothing is left to write; nil where nobody waits, guarded by mu

	flush chan struct{} // buffered by one: "write now"
	ended chan struct{} // closed when the writing goroutine has ended
	life  context.Context
	stop  context.CancelFunc // of life, called by Close
}

// New returns a journal that has no file yet: it keeps what it is given
// until Open. Close must be called.
func New() *Journal {
	j := &Journal{flush: make(chan struct{}, 1), ended: make(chan struct{})}
	j.Dropped = func(lines int) string { return fmt.Sprintf("{\"dropped\":%d}", lines) }
	j.life, j.stop = context.WithCancel(context.Background())
	return j
}

// Open lets the journal write to file, and starts to. It may be called once.
func (j *Journal) Open(file io.WriteCloser) {
	j.mu.Lock()
	j.file, j.since = file, time.Now()
	j.mu.Unlock()
	go j.run()
}

// Write appends whole lines, or a piece of one that goes on with the next Write.
// It never fails, and waits for no longer than Patience says.
func (j *Journal) Write(lines []byte) (int, error) {
	if j.Eager {
		defer func() { _ = j.Sync() }()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.rest)+len(j.pending) == 0 {
		j.since = time.Now() // it is asked from now on
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

// missing returns how many lines were dropped, also in part; it needs mu.
func (j *Journal) missing() int {
	if j.parted {
		return j.dropped + 1
	}
	return j.dropped
}

// awaitRoom waits a little for the file to take what is pending, and returns
// false where it is not worth it. It needs mu, which it gives away meanwhile.
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

// Sync asks for what is pending to be written soon. It does not wait.
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

// drain writes until nothing is left, or the file refuses.
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
			return // told of by the records that can't be published either
		}
	}
}

// next sees to it that there is something in rest, which no other goroutine
// changes, and tells whether there is.
func (j *Journal) next() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.rest) > 0 {
		return true
	}
	j.rest, j.pending, j.since = j.pending, nil, time.Now()
	if j.room != nil {
		close(j.room)
		j.room = nil
	}
	if len(j.rest) > 0 {
		j.torn = j.rest[len(j.rest)-1] != '\n'
	}
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

// Flush has everything written now, and waits for it until ctx ends. It needs a
// journal that is open and not closed.
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

// Left returns how many lines have not been written.
func (j *Journal) Left() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return bytes.Count(j.rest, []byte{'\n'}) + bytes.Count(j.pending, []byte{'\n'}) + j.missing()
}

// Close writes what is pending, closes the file, and waits for it until ctx
// ends; a share that does not answer keeps the rest.
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
