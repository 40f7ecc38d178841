package process

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestLineTagger checks that whole lines are passed on after their tag, and that a line is not longer
// than it may be.
func TestLineTagger(t *testing.T) {
	most := strings.Repeat("x", maxPartialLine)
	for _, tc := range []struct {
		writes []string
		want   string
	}{
		{[]string{"a\nb"}, "t: a\n"},
		{[]string{"a", "b\n", "\nc\nd\n"}, "t: ab\nt: \nt: c\nt: d\n"},
		{[]string{most[1:]}, ""},
		{[]string{most[1:], "x", "y\n"}, "t: " + most + "\nt: y\n"},
	} {
		var out bytes.Buffer
		tagger := NewLineTagger(&out, "t: ", new(sync.Mutex))
		for _, text := range tc.writes {
			if n, err := fmt.Fprint(tagger, text); n != len(text) || err != nil {
				t.Errorf("%d of %d bytes were written: %v", n, len(text), err)
			}
		}
		if out.String() != tc.want {
			t.Errorf("%.20q: %.40q, want %.40q", tc.writes, out.String(), tc.want)
		}
	}
}
