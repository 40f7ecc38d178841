package rsh

import (
	"bytes"
	"encoding/gob"
	"testing"

	"github.com/bringupd/bringupd/pkg/exec"
)

// FuzzAsked reads requests of programs: whatever they send, a request does not exceed the accepted
// size.
func FuzzAsked(f *testing.F) {
	f.Add([]byte(`{"host":"n1","command":"true"}` + "\n"))
	f.Add([]byte(`{"awaits_command":true}` + "\n" + `more`))
	f.Add([]byte("{\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		r, err := readRequest(bytes.NewReader(sent))
		// An invalid byte becomes a character of three bytes.
		if err == nil && len(r.Host)+len(r.Command) > 3*maxRequestSize {
			t.Errorf("a request of %d bytes", len(r.Host)+len(r.Command))
		}
	})
}

// FuzzAgent lets an agent read answers that no daemon sends: it forwards no more data than it
// received, and ends.
func FuzzAgent(f *testing.F) {
	for _, last := range []*exec.Exit{nil, {}, {Code: 3}} {
		var sent bytes.Buffer
		pieces := []exec.Piece{{Stream: 1, Data: []byte("abc")}, {Stream: 2, Data: []byte("d")}}
		_ = gob.NewEncoder(&sent).Encode(exec.Output{Pieces: pieces, End: last})
		f.Add(sent.Bytes())
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		var out, err bytes.Buffer
		ended, failed := forwardOutput(bytes.NewReader(sent), &out, &err)
		if out.Len()+err.Len() > len(sent) {
			t.Errorf("it passes on %d bytes of %d", out.Len()+err.Len(), len(sent))
		}
		if failed != nil && ended != (exec.Exit{Code: NoCode}) {
			t.Errorf("it ends as %+v without being told", ended)
		}
	})
}
