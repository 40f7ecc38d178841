package request

import (
	"slices"
	"sync/atomic"
	"time"
)

const (
	// partSize is how much output goes into one record: with what JSON makes of
	// it, less than a record may have.
	partSize = 256 << 10
	// mostOutput is how much of a command's output is passed on by one node:
	// what nobody reads must not fill the share.
	mostOutput = 256 << 20
	// soonestPart and latestPart are the pauses before output is passed on.
	soonestPart = 20 * time.Millisecond
	latestPart  = 250 * time.Millisecond
)

// output is what a command says. Who writes waits until it is taken.
type output struct {
	said    chan piece    // unbuffered
	closed  chan struct{} // what comes from now on is dropped
	dropped atomic.Int64  // bytes
}

func newOutput() *output {
	return &output{said: make(chan piece), closed: make(chan struct{})}
}

// stream takes in one of the command's streams.
type stream struct {
	*output
	number int
}

// Write implements io.Writer.
func (s stream) Write(data []byte) (int, error) {
	for chunk := range slices.Chunk(data, partSize) {
		select {
		case s.said <- piece{Stream: s.number, Data: slices.Clone(chunk)}:
		case <-s.closed:
			s.dropped.Add(int64(len(chunk)))
		}
	}
	return len(data), nil
}

// passOn has what the command says published: soon at first, and the more rarely the
// longer it runs. When the command has ended, or is not wanted any more, passOn closes
// the output and returns what is not published yet. A publish that fails is the last.
func (o *output) passOn(ended, unwanted <-chan struct{}, publish func([]piece) error) (rest []piece) {
	defer close(o.closed)
	began, total, size, failed := time.Now(), 0, 0, false
	var due <-chan time.Time
	flush := func() {
		failed = failed || len(rest) > 0 && publish(rest) != nil
		rest, size, due = nil, 0, nil
	}
	for {
		select {
		case <-ended:
			return rest
		case <-unwanted:
			return rest
		case <-due:
			flush()
		case said := <-o.said:
			if size+len(said.Data) > partSize {
				flush()
			}
			if failed || total >= mostOutput {
				o.dropped.Add(int64(len(said.Data)))
				continue
			}
			if due == nil {
				due = time.After(min(max(soonestPart, time.Since(began)/8), latestPart))
			}
			total += len(said.Data)
			size += len(said.Data)
			if last := len(rest) - 1; last >= 0 && rest[last].Stream == said.Stream {
				rest[last].Data = append(rest[last].Data, said.Data...)
			} else {
				rest = append(rest, said)
			}
		}
	}
}
