package pmix

import (
	"context"
	"testing"

	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

func TestJoined(t *testing.T) {
	given := func(number uint64, data string) []byte {
		var f frame
		f.addAttributeItems([]attribute{{"", typeSize, number}})
		f = f[8:] // without key and type
		f.addText(data)
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
			if number, data := combineContributions(tc.all); number != tc.number || string(data) != tc.data {
				t.Errorf("got %x and %q", number, data)
			}
		})
	}
}

func TestGroupOfUnknownKind(t *testing.T) {
	var f frame
	f.addByte(9)
	answer := (&Server{}).decodeGroup(&frameReader{rest: f})
	if err := answer(t.Context(), nil); pmi.StatusOf(err) != pmi.NotSupported {
		t.Error(err)
	}
}

// TestRefusedRank verifies that a rank that connects is refused if its node cannot reach the
// others.
func TestRefusedRank(t *testing.T) {
	who := pmi.ProcID{Job: "j", Rank: 3}
	s := &Server{}
	s.AwaitLink = func(_ context.Context, by pmi.ProcID) error {
		if by != who {
			t.Errorf("asked for %v", by)
		}
		return pmi.Unreachable
	}
	for op, want := range map[byte]pmi.Status{upConnected: pmi.Unreachable, upFinalized: 0} {
		var f frame
		f.addProc(who)
		answer, err := s.decodeRequest(op, &frameReader{rest: f})
		if err != nil {
			t.Fatal(err)
		}
		if got := pmi.StatusOf(answer(t.Context(), nil)); got != want {
			t.Errorf("the answer to %d is %v, not %v", op, got, want)
		}
	}
}
