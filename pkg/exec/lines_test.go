package exec

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestMarker(t *testing.T) {
	t.Parallel()
	type said struct {
		rank       int
		mark, text string
	}
	long := strings.Repeat("x", maxHeldLine)
	for _, tc := range []struct {
		name string
		said []said
		want string
	}{
		{"one node, as it comes", []said{{0, "", "a"}, {0, "", "\x1b[1mb\n\n"}}, "a\x1b[1mb\n\n"},
		{"whole lines", []said{{0, "n0: ", "a\nb\n"}, {1, "n1: ", "c\n"}}, "n0: a\nn0: b\nn1: c\n"},
		{"a line in pieces", []said{{0, "n0: ", "a"}, {1, "n1: ", "c\n"}, {0, "n0: ", "b\n"}}, "n1: c\nn0: ab\n"},
		{"no end", []said{{0, "n0: ", "a"}, {1, "n1: ", "c"}}, "n0: a\nn1: c\n"},
		{"an empty line", []said{{0, "n0: ", "\n"}}, "n0: \n"},
		{"a line that is too long", []said{{0, "n0: ", long}, {0, "n0: ", "y\n"}}, "n0: " + long + "\nn0: y\n"},
	} {
		var to bytes.Buffer
		markers := make(map[int]*linePrefixer)
		for _, one := range tc.said {
			if markers[one.rank] == nil {
				markers[one.rank] = newLinePrefixer(&to, one.mark)
			}
			if _, err := markers[one.rank].Write([]byte(one.text)); err != nil {
				t.Fatal(err)
			}
		}
		for _, node := range slices.Sorted(maps.Keys(markers)) {
			must(t, markers[node].Close())
		}
		if to.String() != tc.want {
			t.Errorf("%s: %.200q, not %.200q", tc.name, to.String(), tc.want)
		}
	}
}
