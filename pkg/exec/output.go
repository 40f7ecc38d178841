package exec

import (
	"slices"
	"sync/atomic"
	"time"
)

const (
	// maxPartSize is the maximum amount of output in one record. With the overhead of JSON it is below
	// the size limit of records.
	maxPartSize = 256 << 10
	// maxOutput is the maximum amount of a command's output from one node. Further output is dropped,
	// so that a caller that reads nothing cannot fill the file system.
	maxOutput = 256 << 20
	// minPublishDelay and maxPublishDelay are the minimum and maximum delays before output is
	// published.
	minPublishDelay = 20 * time.Millisecond
	maxPublishDelay = 250 * time.Millisecond
)

// outputBuffer collects a command's output. Writers block until their data is taken.
type outputBuffer struct {
	incoming chan Piece    // unbuffered
	closed   chan struct{} // closed when further output is dropped
	dropped  atomic.Int64  // number of dropped bytes

	maxDelay  time.Duration
	maxOutput int
}

func newOutputBuffer(maxDelay time.Duration, maxOutput int) *outputBuffer {
	return &outputBuffer{
		incoming: make(chan Piece), closed: make(chan struct{}), maxDelay: maxDelay, maxOutput: maxOutput,
	}
}

// outputStream accepts the command's standard output (1) or standard error (2).
type outputStream struct {
	*outputBuffer
	fd int
}

// Write implements [io.Writer]. It never returns an error.
func (s outputStream) Write(data []byte) (int, error) {
	for chunk := range slices.Chunk(data, maxPartSize) {
		select {
		case s.incoming <- Piece{Stream: s.fd, Data: slices.Clone(chunk)}:
		case <-s.closed:
			s.dropped.Add(int64(len(chunk)))
		}
	}
	return len(data), nil
}

// publishLoop publishes the command's output: with a short delay at first, and a longer one the
// longer the command runs. When the command has ended or is cancelled (unwanted), passOn closes the
// output and returns what is not published yet. After an error of publish, it drops all output.
func (o *outputBuffer) publishLoop(ended, unwanted <-chan struct{}, publish func([]Piece) error) (rest []Piece) {
	defer close(o.closed)
	began, total, size, failed := time.Now(), 0, 0, false
	var due <-chan time.Time
	// flush publishes what was collected.
	flush := func() {
		failed = failed || publish(rest) != nil
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
		case said := <-o.incoming:
			// A record must not become too large.
			if size+len(said.Data) > maxPartSize {
				flush()
			}
			if failed || total >= o.maxOutput {
				o.dropped.Add(int64(len(said.Data)))
				continue
			}
			// Collect more output for a moment before it is published.
			if due == nil {
				due = time.After(min(max(minPublishDelay, time.Since(began)/8), o.maxDelay))
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
