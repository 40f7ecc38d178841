package exec

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

// TestCommandOutput verifies what is published of a command's output, what is kept, and what is dropped.
func TestCommandOutput(t *testing.T) {
	full := errors.New("full")
	for _, tc := range []struct {
		name      string
		maxOutput int
		isKept    bool
		fails     error
		isClosed  bool
		want      []Piece
		dropped   int64
	}{
		{"published as it comes", math.MaxInt, false, nil, false,
			[]Piece{{1, []byte("a")}, {1, []byte("b")}, {2, []byte("c")}, {1, []byte("d")}}, 0},
		{"kept, one piece of consecutive output", math.MaxInt, true, nil, false,
			[]Piece{{1, []byte("ab")}, {2, []byte("c")}, {1, []byte("d")}}, 0},
		{"more than is kept", 2, true, nil, false, []Piece{{1, []byte("ab")}}, 2},
		{"it cannot be published", math.MaxInt, false, full, false, []Piece{{1, []byte("a")}}, 3},
		{"cancelled", math.MaxInt, false, nil, true, nil, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []Piece
			o := &commandOutput{command: command{maxOutput: tc.maxOutput}}
			if !tc.isKept {
				o.publish = func(part Output) error {
					got = append(got, part.Pieces...)
					return tc.fails
				}
			}
			o.isClosed.Store(tc.isClosed)
			for _, piece := range []Piece{{1, []byte("a")}, {1, []byte("b")}, {2, []byte("c")}, {1, []byte("d")}} {
				if n, err := (outputStream{o, piece.Stream}).Write(piece.Data); n != 1 || err != nil {
					t.Errorf("it has taken %d bytes: %v", n, err)
				}
			}
			kept, dropped := o.close()
			got = append(got, kept...)
			if len(got) != len(tc.want) || dropped != tc.dropped {
				t.Fatalf("there are %v, dropped %d", got, dropped)
			}
			for i, want := range tc.want {
				if got[i].Stream != want.Stream || !bytes.Equal(got[i].Data, want.Data) {
					t.Errorf("piece %d is %+v", i, got[i])
				}
			}
		})
	}
}
