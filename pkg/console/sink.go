package console

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/process"
)

const (
	// maxPending bounds the data that wait for the reader, in bytes. A single longer line is accepted
	// if nothing else waits.
	maxPending = 8 << 20
	// maxWrite is the size of one write in bytes: the capacity of a pipe.
	maxWrite = 64 << 10
	// readerTimeout is how long a reader may take to read [maxPending] bytes before lines are dropped:
	// a reader of 8 MiB/s misses nothing.
	readerTimeout = time.Second
)

// fileSink writes the output of many ranks to one file, from a goroutine of its own.
type fileSink struct {
	to   io.Writer
	unit string        // the meaning of the numbers: "rank" or "node"
	wake chan struct{} // signals that there is work
	done chan struct{} // closed when the goroutine has ended

	mu             sync.Mutex
	pending        []byte
	size           int           // bytes that the reader has not taken
	room           chan struct{} // closed when the reader takes some
	readerDeadline time.Time     // deadline for the reader; zero while there is room
	takenBytes     int           // bytes taken in the current period of [readerTimeout]
	droppedBytes   map[int]int   // bytes dropped since the last report, by rank
	lastRank       int           // the rank that has written last
	inLine         bool          // the last line written has no end yet
	stopped        bool
	err            error // non-nil if nothing can be written any more
}

func newFileSink(to io.Writer, of string) *fileSink {
	s := &fileSink{to: to, unit: of, wake: make(chan struct{}, 1), done: make(chan struct{}),
		room: make(chan struct{}), droppedBytes: make(map[int]int)}
	go s.writePending()
	return s
}

// addOutput accepts whole lines of a rank. If there is no room in time, it drops them and counts
// them in [fileSink.droppedBytes].
func (s *fileSink) addOutput(rank int, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.err == nil && s.size > 0 && s.size+len(data) > maxPending && s.awaitRoom() {
	}
	switch {
	case s.err != nil:
		return s.err
	case s.size > 0 && s.size+len(data) > maxPending:
		s.droppedBytes[rank] += len(data)
		return nil
	}
	if s.inLine && s.lastRank != rank {
		s.appendPending([]byte{'\n'})
	}
	s.lastRank = rank
	s.appendPending(data)
	return nil
}

// awaitRoom waits for room, but not longer than [readerTimeout] allows. It reports whether
// [fileSink.addOutput] should check again. The caller holds mu. It is released during the wait.
func (s *fileSink) awaitRoom() bool {
	if s.readerDeadline.IsZero() {
		s.readerDeadline, s.takenBytes = time.Now().Add(readerTimeout), 0
	}
	left, room := time.Until(s.readerDeadline), s.room
	if left <= 0 || s.stopped {
		return false
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	return ctxutil.AwaitDoneFor(room, left)
}

// appendPending appends data to the pending output. The caller holds mu.
func (s *fileSink) appendPending(data []byte) {
	if len(data) == 0 {
		return
	}
	s.pending = append(s.pending, data...)
	s.size += len(data)
	s.inLine = data[len(data)-1] != '\n'
	ctxutil.NotifyChannel(s.wake)
}

// writePending writes pending output until the sink is stopped or fails.
func (s *fileSink) writePending() {
	defer close(s.done)
	for range s.wake {
		for batch := s.nextBatch(); len(batch) > 0; batch = s.nextBatch() {
			for len(batch) > 0 && s.writePiece(batch[:min(maxWrite, len(batch))]) {
				batch = batch[min(maxWrite, len(batch)):]
			}
		}
		if s.isFinished() {
			return
		}
	}
}

// nextBatch returns the pending output, followed by a report of the dropped output.
func (s *fileSink) nextBatch() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.droppedBytes) > 0 && s.err == nil {
		if s.inLine {
			s.appendPending([]byte{'\n'})
		}
		s.appendPending([]byte(droppedMessage(s.droppedBytes, s.unit)))
		clear(s.droppedBytes)
	}
	batch := s.pending
	s.pending = nil
	return batch
}

// writePiece writes data and waits for the reader. It returns false if the reader has gone.
func (s *fileSink) writePiece(data []byte) bool {
	err := process.WriteRetrying(s.to, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.err, s.pending = err, nil
	}
	s.size -= len(data)
	s.takenBytes += len(data)
	switch {
	case s.size == 0:
		s.readerDeadline = time.Time{}
	case s.takenBytes >= maxPending:
		s.readerDeadline, s.takenBytes = time.Now().Add(readerTimeout), 0
	}
	close(s.room)
	s.room = make(chan struct{})
	return err == nil
}

func (s *fileSink) isFinished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil || s.stopped && len(s.pending) == 0 && len(s.droppedBytes) == 0
}

func (s *fileSink) requestStop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	ctxutil.NotifyChannel(s.wake)
}

func (s *fileSink) awaitEnd(ctx context.Context, name string) error {
	ended := ctxutil.AwaitDone(ctx, s.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return fmt.Errorf("%s of the ranks: %w", name, s.err)
	case !ended:
		return fmt.Errorf("cannot pass on the last %d bytes of the ranks to %s: they are not read: %w", s.size,
			name, context.Cause(ctx))
	}
	return nil
}
