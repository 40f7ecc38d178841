package request

import (
	"slices"
	"sync/atomic"
	"time"
)

const (
	// partSize is the maximum amount of output in one record. With the overhead of JSON it is below
	// the size limit of records.
	partSize = 256 << 10
	// mostOutput is the maximum amount of a command's output from one node. Further output is dropped,
	// so that a caller that reads nothing cannot fill the file system.
	mostOutput = 256 << 20
	// soonestPart and latestPart are the minimum and maximum delays before output is published.
	soonestPart = 20 * time.Millisecond
	latestPart  = 250 * time.Millisecond
)

// output collects a command's output. Writers block until their data is taken.
type output struct {
	said    chan piece    // unbuffered
	closed  chan struct{} // closed when further output is dropped
	dropped atomic.Int64  // number of dropped bytes
}

func newOutput() *output {
	return &output{said: make(chan piece), closed: make(chan struct{})}
}

// stream accepts the command's standard output (1) or standard error (2).
type stream struct {
	*output
	number int
}

// Write implements [io.Writer]. It never returns an error.
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

// passOn publishes the command's output: with a short delay at first, and a longer one the longer
// the command runs. When the command has ended or is cancelled (unwanted), passOn closes the output
// and returns what is not published yet. After an error of publish, it drops all output.
func (o *output) passOn(ended, unwanted <-chan struct{}, publish func([]piece) error) (rest []piece) {
	defer close(o.closed)
	began, total, size, failed := time.Now(), 0, 0, false
	var due <-chan time.Time
	// flush publishes what was collected.
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
			// A record must not become too large.
			if size+len(said.Data) > partSize {
				flush()
			}
			if failed || total >= mostOutput {
				o.dropped.Add(int64(len(said.Data)))
				continue
			}
			// Collect more output for a moment before it is published.
			if due == nil {
				due = time.After(min(max(soonestPart, time.Since(began)/8), latestPart))
			}
			total += len(said.Data)
			size += len(said.Data)
			// Merge consecutive output of one stream.
			if last := len(rest) - 1; last >= 0 && rest[last].Stream == said.Stream {
				rest[last].Data = append(rest[last].Data, said.Data...)
			} else {
				rest = append(rest, said)
			}
		}
	}
}
