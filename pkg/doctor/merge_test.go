package doctor

import "testing"

func TestCut(t *testing.T) {
	for _, tc := range []struct {
		text string
		most int
		want string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"äöü", 3, "äöü"}, // characters, and not bytes
		{"äöüß", 3, "äö…"},
		{"ab", 1, "…"},
	} {
		if got := cut(tc.text, tc.most); got != tc.want {
			t.Errorf("%q cut to %d is %q, not %q", tc.text, tc.most, got, tc.want)
		}
	}
}
