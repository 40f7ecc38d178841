package pmix

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/pmi"
)

func TestJoined(t *testing.T) {
	given := func(number uint64, data string) []byte {
		var f frame
		f.each([]info{{"", typeSize, number}})
		f = f[8:] // without key and type
		f.text(data)
		return f
	}
	a, b := given(1<<40|1, "one"), given(1<<41|3, "")
	for name, tc := range map[string]struct {
		all    []byte
		number uint64
		data   string
	}{
		"nobody":          {nil, 0, ""},
		"one node":        {a, 1<<40 | 1, "one"},
		"two":             {append(append([]byte(nil), a...), b...), 3<<40 | 2, "one"},
		"the other order": {append(append([]byte(nil), b...), a...), 3<<40 | 2, "one"},
		"cut off":         {a[:len(a)-1], 1<<40 | 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if number, data := joined(tc.all); number != tc.number || string(data) != tc.data {
				t.Errorf("got %x and %q", number, data)
			}
		})
	}
}

func TestGroupOfUnknownKind(t *testing.T) {
	var f frame
	f.byte(9)
	answer := (&Server{}).group(&reader{left: f})
	if err := answer(t.Context(), nil); pmi.StatusOf(err) != pmi.NotSupported {
		t.Error(err)
	}
}
