package daemon

import (
	"bytes"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
)

func TestExecOutputKept(t *testing.T) {
	t.Parallel()
	o := newExecOutput()
	for _, text := range []string{"a", "b"} {
		_, _ = o.stream(1).Write([]byte(text))
	}
	_, _ = o.stream(2).Write([]byte("c"))
	_, _ = o.stream(1).Write([]byte("d"))
	pieces := o.take()
	want := []signal.ExecPiece{{Stream: 1, Data: []byte("ab")}, {Stream: 2, Data: []byte("c")}, {Stream: 1, Data: []byte("d")}}
	if len(pieces) != len(want) {
		t.Fatalf("there are %d pieces", len(pieces))
	}
	for i, piece := range pieces {
		if piece.Stream != want[i].Stream || !bytes.Equal(piece.Data, want[i].Data) {
			t.Errorf("piece %d is %+v", i, piece)
		}
	}
	if more := o.take(); len(more) > 0 || o.lost() > 0 {
		t.Errorf("there is more: %v, lost %d", more, o.lost())
	}
}

// Who writes is held up while a record's worth is there, and no longer.
func TestExecOutputHeld(t *testing.T) {
	t.Parallel()
	o := newExecOutput()
	written := make(chan int)
	go func() {
		n, _ := o.stream(1).Write(make([]byte, 3*partSize))
		written <- n
	}()
	for range 2 {
		taken := 0
		for taken < partSize {
			<-o.some
			for _, piece := range o.take() {
				taken += len(piece.Data)
			}
		}
		if taken > partSize {
			t.Errorf("%d bytes go into one record", taken)
		}
	}
	o.close()
	if n := <-written; n != 3*partSize {
		t.Errorf("%d bytes were taken", n)
	}
	if kept := o.take(); len(kept) > 1 || o.lost() > partSize {
		t.Errorf("kept %d pieces, lost %d bytes", len(kept), o.lost())
	}
}

func TestExecOutputBounded(t *testing.T) {
	t.Parallel()
	o := newExecOutput()
	chunk := make([]byte, partSize)
	for range mostOutput / partSize {
		_, _ = o.stream(1).Write(chunk)
		o.take()
	}
	_, _ = o.stream(1).Write([]byte("more"))
	if more := o.take(); len(more) > 0 || o.lost() != 4 {
		t.Errorf("%d more pieces, %d bytes lost", len(more), o.lost())
	}
}
