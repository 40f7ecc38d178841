package exec

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// writeOutput runs a command that writes output and ends, and returns the records of its output; the last
// one was not published.
func writeOutput(t *testing.T, o *outputBuffer, say func(), publish func([]Piece) error) (records [][]Piece) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		say()
	}()
	o.publish = func(part Output) error {
		records = append(records, part.Pieces)
		return publish(part.Pieces)
	}
	return append(records, o.publishLoop(ended, nil))
}

func published([]Piece) error { return nil }

// outputLimit is the maximum output of the tests.
const outputLimit = 64 << 20

func newOutputBuffer() *outputBuffer {
	c := command{maxDelay: maxPublishDelay, maxOutput: outputLimit}
	return &outputBuffer{command: c, incoming: make(chan Piece), closed: make(chan struct{})}
}

// TestOutputKept verifies that consecutive output of one stream is a single piece.
func TestOutputKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutputBuffer()
		records := writeOutput(t, o, func() {
			for _, text := range []string{"a", "b"} {
				_, _ = outputStream{o, 1}.Write([]byte(text))
			}
			_, _ = outputStream{o, 2}.Write([]byte("c"))
			_, _ = outputStream{o, 1}.Write([]byte("d"))
		}, published)
		want := []Piece{{Stream: 1, Data: []byte("ab")}, {Stream: 2, Data: []byte("c")}, {Stream: 1, Data: []byte("d")}}
		if len(records) != 1 || len(records[0]) != len(want) || o.dropped.Load() > 0 {
			t.Fatalf("there are %v, dropped %d", records, o.dropped.Load())
		}
		for i, got := range records[0] {
			if got.Stream != want[i].Stream || !bytes.Equal(got.Data, want[i].Data) {
				t.Errorf("piece %d is %+v", i, got)
			}
		}
	})
}

// TestOutputCut verifies that records are filled up to their limit and not beyond, and that no
// accepted output is lost.
func TestOutputCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutputBuffer()
		records := writeOutput(t, o, func() {
			for _, size := range []int{1, maxPartSize - 1, 1, 3*maxPartSize + 7} {
				if n, err := (outputStream{o, 1}).Write(make([]byte, size)); n != size || err != nil {
					t.Errorf("%d bytes of %d were taken: %v", n, size, err)
				}
			}
		}, published)
		var sizes []int
		for _, pieces := range records {
			size := 0
			for _, piece := range pieces {
				size += len(piece.Data)
			}
			sizes = append(sizes, size)
		}
		want := []int{maxPartSize, 1, maxPartSize, maxPartSize, maxPartSize, 7}
		if !slices.Equal(sizes, want) || o.dropped.Load() > 0 {
			t.Errorf("the records have %v bytes, want %v; dropped %d", sizes, want, o.dropped.Load())
		}
	})
}

// TestOutputDropped verifies that a writer blocks while its output is not read, but no longer than
// necessary: not after the command was cancelled, nor after a record could not be written.
func TestOutputDropped(t *testing.T) {
	t.Parallel()
	t.Run("not wanted", func(t *testing.T) {
		o, unwanted := newOutputBuffer(), make(chan struct{})
		close(unwanted)
		o.publishLoop(nil, unwanted)
		if n, err := (outputStream{o, 1}).Write(make([]byte, 3*maxPartSize)); n != 3*maxPartSize || err != nil || o.dropped.Load() != 3*maxPartSize {
			t.Errorf("%d bytes were taken, dropped %d, %v", n, o.dropped.Load(), err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		o := newOutputBuffer()
		records := writeOutput(t, o, func() { _, _ = outputStream{o, 1}.Write(make([]byte, 4*maxPartSize)) }, func([]Piece) error { return errors.New("full") })
		if len(records) != 2 || len(records[1]) > 0 || o.dropped.Load() != 3*maxPartSize {
			t.Errorf("there were %d records, dropped %d", len(records), o.dropped.Load())
		}
	})
}

func TestOutputBounded(t *testing.T) {
	t.Parallel()
	o := newOutputBuffer()
	chunk := make([]byte, maxPartSize)
	records := writeOutput(t, o, func() {
		for range outputLimit / maxPartSize {
			_, _ = outputStream{o, 1}.Write(chunk)
		}
		_, _ = outputStream{o, 1}.Write([]byte("more"))
	}, published)
	if len(records) != outputLimit/maxPartSize+1 || o.dropped.Load() != 4 {
		t.Errorf("there were %d records, dropped %d", len(records), o.dropped.Load())
	}
}

// TestOutputPace verifies that a command's first output is published soon, and later output in
// larger intervals.
func TestOutputPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutputBuffer()
		var written, records []time.Time
		writeOutput(t, o, func() {
			for _, pause := range []time.Duration{0, time.Second, 10 * time.Second} {
				time.Sleep(pause)
				written = append(written, time.Now())
				for range 2 {
					_, _ = outputStream{o, 1}.Write([]byte("x"))
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(maxPublishDelay)
		}, func([]Piece) error {
			records = append(records, time.Now())
			return nil
		})
		var delays []time.Duration
		for i, at := range records {
			delays = append(delays, at.Sub(written[min(i, len(written)-1)]).Truncate(5*time.Millisecond))
		}
		want := []time.Duration{minPublishDelay, time.Second / 8, maxPublishDelay}
		if !slices.Equal(delays, want) {
			t.Errorf("it was published after %v, want %v", delays, want)
		}
	})
}
