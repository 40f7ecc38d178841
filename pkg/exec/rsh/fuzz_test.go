package rsh

import (
	"bytes"
	"io"
	"testing"
)

// FuzzAsked reads requests of programs: whatever they send, a request does not exceed the accepted
// size.
func FuzzAsked(f *testing.F) {
	f.Add([]byte(`{"host":"n1","command":"true"}` + "\n"))
	f.Add([]byte(`{"here":true}` + "\n" + `more`))
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
	f.Add([]byte("o\x00\x00\x00\x03abcx\x00\x00\x00\x0a{\"code\":3}"))
	f.Add([]byte("e\xff\xff\xff\xff"))
	f.Add([]byte("x\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		var out, err bytes.Buffer
		ended, failed := Agent{Out: &out, Err: &err}.forwardOutput(bytes.NewReader(sent))
		if out.Len()+err.Len() > len(sent) {
			t.Errorf("it passes on %d bytes of %d", out.Len()+err.Len(), len(sent))
		}
		if failed == io.EOF && ended != (commandExit{}) {
			t.Errorf("it ends as %+v without being told", ended)
		}
	})
}
