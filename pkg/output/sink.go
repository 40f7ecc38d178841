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
	// limit bounds the data that wait for the reader, in bytes. A single longer line is accepted if
	// nothing else waits.
	limit = 8 << 20
	// piece is the size of one write in bytes: the capacity of a pipe.
	piece = 64 << 10
	// patience is how long a reader may take to read [limit] bytes before lines are dropped: a reader
	// of 8 MiB/s misses nothing.
	patience = time.Second
)

// sink writes the output of many ranks to one file, from a goroutine of its own.
type sink struct {
	to   io.Writer
	of   string        // the meaning of the numbers: "rank" or "node"
	bell chan struct{} // signals that there is work
	done chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	pending []byte
	size    int           // bytes that the reader has not taken
	room    chan struct{} // closed when the reader takes some
	until   time.Time     // deadline for the reader; zero while there is room
	taken   int           // bytes taken in the current period of [patience]
	lost    map[int]int   // bytes dropped since the last report, by rank
	last    int           // the rank that has written last
	open    bool          // the last line written has no end yet
	stopped bool
	err     error // non-nil if nothing can be written any more
}

// newSink returns a sink and starts its goroutine.
func newSink(to io.Writer, of string) *sink {
	s := &sink{to: to, of: of, bell: make(chan struct{}, 1), done: make(chan struct{}), room: make(chan struct{}), lost: make(map[int]int)}
	go s.run()
	return s
}

// add accepts whole lines of a rank. If there is no room in time, it drops them and counts them in
// [sink.lost].
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

// wait waits for room, but not longer than [patience] allows. It reports whether [sink.add] should
// check again. The caller holds mu. It is released during the wait.
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

// put appends data to the pending output. The caller holds mu.
func (s *sink) put(data []byte) {
	if len(data) == 0 {
		return
	}
	s.pending = append(s.pending, data...)
	s.size += len(data)
	s.open = data[len(data)-1] != '\n'
	pause.Ring(s.bell)
}

// run writes pending output until the sink is stopped or fails.
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

// next returns the pending output, followed by a report of the dropped output.
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

// give writes data and waits for the reader. It returns false if the reader has gone.
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

// over reports whether the goroutine has nothing left to do.
func (s *sink) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil || s.stopped && len(s.pending) == 0 && len(s.lost) == 0
}

// stop makes the goroutine end after it has written everything.
func (s *sink) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	pause.Ring(s.bell)
}

// await waits until the goroutine has ended or ctx ends.
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
