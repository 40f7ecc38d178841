package exec

import (
	"bytes"
	"encoding/gob"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// FuzzRequestNames parses any names in control/: everything that it returns for a request exists
// under exactly these names.
func FuzzRequestNames(f *testing.F) {
	f.Add("call.0123456789abcdef\ncall.call.0123456789abcdef\ncall.\njob")
	f.Add("exec.0123456789abcdef\nexec.0123456789abcdef.cancel\nexec.0123456789ABCDEF\nexec.0123456789abcde")
	f.Fuzz(func(t *testing.T, listing string) {
		names := strings.Split(listing, "\n")
		for id, shown := range groupByRequest(names) {
			raw, err := hex.DecodeString(string(id))
			if err != nil || len(raw) != 8 || strings.ToLower(string(id)) != string(id) {
				t.Errorf("%q is no id", id)
			}
			for _, name := range shown {
				if !slices.Contains(names, name) || !strings.Contains(name, string(id)) {
					t.Errorf("%q of %q is none of %q", name, id, names)
				}
			}
		}
	})
}

// FuzzMessage reads messages of programs: whatever they send, a message does not exceed the accepted
// size.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"host":"n1","command":"true"}` + "\n"))
	f.Add([]byte(`{"awaits_command":true}` + "\n" + `more`))
	f.Add([]byte("{\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		m, _, err := readMessage(bytes.NewReader(sent))
		// An invalid byte becomes a character of three bytes.
		if err == nil && len(m.Host)+len(m.Command) > 3*maxMessageSize {
			t.Errorf("a message of %d bytes", len(m.Host)+len(m.Command))
		}
	})
}

// FuzzOutput lets an agent read answers that no daemon sends: it forwards no more data than it
// received, and ends.
func FuzzOutput(f *testing.F) {
	for _, last := range []*Exit{nil, {}, {Code: 3}} {
		var sent bytes.Buffer
		pieces := []Piece{{Stream: 1, Data: []byte("abc")}, {Stream: 2, Data: []byte("d")}}
		_ = gob.NewEncoder(&sent).Encode(Output{Pieces: pieces, End: last})
		f.Add(sent.Bytes())
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		var out bytes.Buffer
		ended, failed := receiveOutput(bytes.NewReader(sent), func(o Output) { _ = o.Forward(&out, &out) })
		if out.Len() > len(sent) {
			t.Errorf("it passes on %d bytes of %d", out.Len(), len(sent))
		}
		if failed != nil && ended != (Exit{Code: NoCode}) {
			t.Errorf("it ends as %+v without being told", ended)
		}
	})
}
