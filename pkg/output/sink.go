package output

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
)

const (
	// limit is how much waits for a reader, in bytes; a line that is longer waits
	// alone.
	limit = 8 << 20
	// piece is how much a reader is given at once, in bytes: as much as a pipe holds.
	piece = 64 << 10
	// patience is how long a reader may take for a limit before lines are left out:
	// who takes 8 MiB a second misses nothing.
	patience = time.Second
)

// sink is one file that ranks are passed on to, by a goroutine of its own.
type sink struct {
	to   io.Writer
	of   string        // what is numbered: "rank" or "node"
	bell chan struct{} // there is something to do
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	pending []byte
	size    int           // of what the reader has not taken
	room    chan struct{} // closed when he takes some
	until   time.Time     // when patience ends; zero while there was room
	taken   int           // since patience began
	lost    map[int]int   // bytes left out since that was told, by rank
	last    int           // whose bytes are the last
	open    bool          // they do not end a line
	stopped bool
	err     error // why nothing is taken any more
}

func newSink(to io.Writer, of string) *sink {
	s := &sink{to: to, of: of, bell: make(chan struct{}, 1), done: make(chan struct{}), room: make(chan struct{}), lost: make(map[int]int)}
	go s.run()
	return s
}

// add takes whole lines of a rank, or leaves them out where there is no room.
func (s *sink) add(rank int, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.size > 0 && s.size+len(data) > limit && s.wait() {
	}
	switch {
	case s.err != nil:
		return s.err
	case s.size > 0 && s.size+len(data) > limit:
		s.lost[rank] += len(data)
		return nil
	}
	if s.open && s.last != rank {
		s.put([]byte{'\n'})
	}
	s.last = rank
	s.put(data)
	return nil
}

// wait waits for room, while there is patience. It needs mu, and gives it up
// meanwhile.
func (s *sink) wait() bool {
	if s.until.IsZero() {
		s.until, s.taken = time.Now().Add(patience), 0
	}
	left, room := time.Until(s.until), s.room
	if left <= 0 || s.stopped {
		return false
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	return pause.Until(room, left)
}

// put needs mu.
func (s *sink) put(data []byte) {
	if len(data) == 0 {
		return
	}
	s.pending = append(s.pending, data...)
	s.size += len(data)
	s.open = data[len(data)-1] != '\n'
	pause.Ring(s.bell)
}

func (s *sink) run() {
	defer close(s.done)
	for range s.bell {
		for batch := s.next(); len(batch) > 0; batch = s.next() {
			for len(batch) > 0 && s.give(batch[:min(piece, len(batch))]) {
				batch = batch[min(piece, len(batch)):]
			}
		}
		if s.over() {
			return
		}
	}
}

// next is what waits, and what is missing after it.
func (s *sink) next() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lost) > 0 && s.err == nil {
		if s.open {
			s.put([]byte{'\n'})
		}
		s.put([]byte(missing(s.lost, s.of)))
		clear(s.lost)
	}
	batch := s.pending
	s.pending = nil
	return batch
}

// give waits for the reader. It returns false where there is none any more.
func (s *sink) give(data []byte) bool {
	err := process.PassOn(s.to, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err, s.pending = err, nil
	}
	s.size -= len(data)
	s.taken += len(data)
	switch {
	case s.size == 0:
		s.until = time.Time{}
	case s.taken >= limit:
		s.until, s.taken = time.Now().Add(patience), 0
	}
	close(s.room)
	s.room = make(chan struct{})
	return err == nil
}

// over tells whether the goroutine's work is.
func (s *sink) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil || s.stopped && len(s.pending) == 0 && len(s.lost) == 0
}

// stop ends the goroutine when all was taken.
func (s *sink) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	pause.Ring(s.bell)
}

// await waits for that, until ctx ends.
func (s *sink) await(ctx context.Context, name string) error {
	ended := pause.Await(ctx, s.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return fmt.Errorf("%s of the ranks: %w", name, s.err)
	case !ended:
		return fmt.Errorf("cannot pass on the last %d bytes of the ranks to %s: nobody reads them: %w", s.size, name, context.Cause(ctx))
	}
	return nil
}
