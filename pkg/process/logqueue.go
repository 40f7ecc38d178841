package process

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

const (
	// queueSize is how many bytes wait for the log at most; as many may be in the write that is under way.
	queueSize = 1 << 20
	// longestLine is where a line is cut into pieces.
	longestLine = 64 << 10
	// cutMark ends each piece of a cut line but the last.
	cutMark = " [bringupd: the line goes on]"
)

// logQueue takes lines from readers that must not wait, and gives them to a writer that may hang.
type logQueue struct {
	to   io.Writer
	tag  string
	wake chan struct{} // holds a token where something is new
	done chan struct{} // closed by run

	mu      sync.Mutex
	pending []byte
	lines   int // in pending
	dropped int // lines that no notice in the log tells of yet
	closed  bool
	err     error // the first of the writer's
}

func newLogQueue(to io.Writer, tag string) *logQueue {
	return &logQueue{to: to, tag: tag, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// put queues one line, which has no newline of its own, or drops it. It never waits.
func (q *logQueue) put(line []byte, mark string) {
	q.mu.Lock()
	if len(q.pending)+len(q.tag)+len(line)+len(mark)+1 > queueSize {
		q.dropped++
	} else {
		q.pending = append(q.pending, q.tag...)
		q.pending = append(q.pending, line...)
		q.pending = append(q.pending, mark...)
		q.pending = append(q.pending, '\n')
		q.lines++
	}
	q.mu.Unlock()
	q.nudge()
}

func (q *logQueue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// close says that no more lines come; run ends when it has written those that are queued.
func (q *logQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.nudge()
}

// batch is what one write takes.
type batch struct {
	text   []byte
	lines  int // in text, the notice left out
	missed int // lines that the notice in text tells of
	last   bool
}

// take swaps the queue for an empty one that uses spare's memory. Lines are dropped while the queue is full, hence after
// all that it holds, so their notice goes to its end; it alone is no reason for a write, except the last one.
func (q *logQueue) take(spare []byte) batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := batch{text: q.pending, lines: q.lines, last: q.closed}
	q.pending, q.lines = spare[:0], 0
	if q.dropped > 0 && (b.lines > 0 || b.last) {
		b.text = fmt.Appendf(b.text, "%s[bringupd: %d lines dropped: the log was not taking them]\n", q.tag, q.dropped)
		b.missed, q.dropped = q.dropped, 0
	}
	return b
}

// run writes what is queued, some whole lines a call, until the queue is closed and empty. A write that fails costs its
// lines; the next may succeed (a full file system is made room on).
func (q *logQueue) run() {
	defer close(q.done)
	var spare []byte // the memory of the last batch, which is ours again
	torn := false
	for range q.wake {
		for {
			b := q.take(spare)
			spare = b.text
			ok := true
			if len(b.text) > 0 {
				torn, ok = q.write(b, torn)
			}
			if b.last && (len(b.text) == 0 || !ok) {
				return
			}
			if len(b.text) == 0 {
				break
			}
		}
	}
}

// write gives one batch to the writer. torn is whether the log ends in the middle of a line: before, and after.
func (q *logQueue) write(b batch, torn bool) (tornNow, ok bool) {
	text := b.text
	if torn {
		text = append([]byte{'\n'}, text...)
	}
	n, err := q.to.Write(text)
	if err == nil {
		return false, true
	}
	n = max(0, min(n, len(text)))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropped += b.missed + min(b.lines, bytes.Count(text[n:], []byte{'\n'}))
	if q.err == nil {
		q.err = fmt.Errorf("cannot write to the log: %v", err)
	}
	return n > 0 && text[n-1] != '\n' || n == 0 && torn, false
}

// outcome returns what went wrong so far: the writer's error, lines that nobody will write.
func (q *logQueue) outcome(finished bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !finished {
		return fmt.Errorf("cannot finish the log: it was not taking the last lines (%d bytes queued)", len(q.pending))
	}
	return q.err
}
