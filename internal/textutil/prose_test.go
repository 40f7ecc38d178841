package textutil

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestTimes(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{RoundedDuration(3240*time.Microsecond, time.Minute), "3.2ms"},
		{RoundedDuration(41*time.Millisecond+300*time.Microsecond, time.Minute), "41ms"},
		{RoundedDuration(41234*time.Millisecond, time.Minute), "41.2s"},
		{RoundedDuration(41234*time.Millisecond, 10*time.Second), "41s"},
		{RoundedDuration(61234*time.Millisecond, time.Minute), "1m1s"},
		{BriefDuration(-1250 * time.Millisecond), "−1.25 s"},
		{BriefDuration(0), "0"},
		{BriefDuration(1), "1 µs"},
		{BriefDuration(250 * time.Microsecond), "0.2 ms"},
		{BriefDuration(12 * time.Millisecond), "12 ms"},
		{BriefDuration(61234 * time.Millisecond), "61.2 s"},
		{BriefDuration(187 * time.Second), "3 min 07 s"},
		{BriefDuration(127 * time.Minute), "2 h 07 min"},
		{FlagDuration(10 * time.Minute), "10m"},
		{FlagDuration(90 * time.Second), "1m30s"},
		{FlagDuration(4 * time.Second), "4s"},
		{FlagDuration(2 * time.Hour), "2h"},
		{FlagDuration(150 * time.Minute), "2h30m"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

func TestSizes(t *testing.T) {
	for size, want := range map[uint64]string{
		0: "0 bytes", 1023: "1023 bytes", 1 << 10: "1.0 KiB", 64 << 20: "64 MiB",
		3 << 29: "1.5 GiB", 129 << 29: "64 GiB", 1 << 62: "4.0 EiB",
	} {
		if got := FormatSize(size); got != want {
			t.Errorf("%d: got %q, want %q", size, got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000",
		-100: "-100", 1234567: "1,234,567"} {
		if got := GroupThousands(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
}

func TestLists(t *testing.T) {
	parts := []string{"a", "b", "c", "d"}
	for most, want := range map[int]string{0: "and 4 more", 2: "a; b; and 2 more", 4: "a; b; c; d", 5: "a; b; c; d"} {
		if got := JoinLimited(parts, most, "; "); got != want {
			t.Errorf("at most %d: got %q, want %q", most, got, want)
		}
	}
	if parts[2] != "c" {
		t.Errorf("the parts have become %q", parts)
	}
	for want, ranks := range map[string][]int{
		"node 3": {3}, "nodes 1,3": {1, 3}, "nodes 1-3,7": {1, 2, 3, 7}, "nodes 0-1": {0, 1},
		"nodes ": nil, "nodes 0,2-4,6,9-10": {0, 2, 3, 4, 6, 9, 10},
	} {
		if got := FormatIndices("node", ranks); got != want {
			t.Errorf("%v is %q, want %q", ranks, got, want)
		}
	}
}

// TestParseRanges parses lists, of which a damaged file may have any.
func TestParseRanges(t *testing.T) {
	for list, want := range map[string]string{
		"1-3,7": "[1 2 3 7]", "0": "[0]", "": "[]", "x,2": "", "3-1": "", "5-99": "", "-1": "",
		"7,0-3,2": "[0 1 2 3 7]", "0-7,0-7": "",
	} {
		got, err := ParseRanges(list, 7)
		if (err != nil) != (want == "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: got %v, %v, want %s", list, got, err, want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"tcp", "http", "https", "grpc", "exec", "file"}
	for _, tc := range []struct {
		word  string
		limit int
		want  string
	}{
		{"htpp", 3, "http"}, {"htps", 3, "https"}, {"ecec", 3, "exec"}, {"gopher", 3, ""},
		{"htps", 1, ""}, {"tcp", 1, "tcp"}, {"", 3, ""}, {"tpc", 3, "tcp"}, {"tpc", 2, ""},
	} {
		if got := NearestWord(tc.word, known, tc.limit); got != tc.want {
			t.Errorf("%q, fewer than %d away: got %q, want %q", tc.word, tc.limit, got, tc.want)
		}
	}
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{"/a/b.c": "/a/b.c", "": "''", "a b": "'a b'",
		"/a b/'c'": `'/a b/'\''c'\'''`, "it's": `'it'\''s'`, "$x": "'$x'",
		"$(id)": "'$(id)'", "\x1b]0;x\a'": `$'\x1b]0;x\x07\''`, "a\nb": `$'a\x0ab'`,
		"\xff": `$'\xff'`, "größe": "'größe'"} {
		if got := QuoteShellWord(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, tc := range []struct {
		text string
		most int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"äöü", 3, "äöü"}, {"äöüß", 3, "äö…"},
		{"ab", 1, "…"}, {"abc", 0, "…"},
	} {
		if got := TruncateText(tc.text, tc.most); got != tc.want {
			t.Errorf("%q cut to %d is %q, want %q", tc.text, tc.most, got, tc.want)
		}
	}
}

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":              "",
		" plain \n":     "plain",
		"a\tb\r\nc":     "a b  c",
		"\x1b[31mred":   "\ufffd[31mred",
		"größer":        "größer",
		"\u202eforged":  "\ufffdforged",
		"a\u2028b":      "a b",
		"bad \xff utf8": "bad \ufffd utf8",
	} {
		if got := SingleLine(text, 400); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
	}
	if got := SingleLine(strings.Repeat("ä", 1000), 400); utf8.RuneCountInString(got) != 400 ||
		!strings.HasSuffix(got, "…") {
		t.Errorf("a long text becomes one of %d characters", utf8.RuneCountInString(got))
	}
}

func TestPlain(t *testing.T) {
	for text, want := range map[string]string{
		"step 41, größer":            "step 41, größer",
		"\x1b[1;32mok\x1b[0m":        "ok",
		"\x1b]0;title\atext":         "text",
		"\x1b]0;title\x1b\\text":     "text",
		"before\x1b]0;title":         "before",
		"\x1bPdevice\x1b\\control":   "control",
		"a\x1b[3":                    "a[3",
		"a\x1b":                      "a",
		"a\x1b(B":                    "aB",
		"a\x1bä":                     "aä",
		"\x1b\x1b[31mred":            "red",
		"a\a\tb\nc":                  "a bc",
		"\u202eforged\u2066 \u2028b": "forged b",
		"a\xffb":                     "a\ufffdb",
	} {
		if got := StripControls(text); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
	}
}

func TestTerminalLine(t *testing.T) {
	for line, want := range map[string]string{
		"\x1b[1;32mok\x1b[0m": "ok", "10%\r50%\r90%": "90%", "text\r\n": "text", "\xff\xfe": "?", "a\nb": "a b",
	} {
		if got := TerminalLine(line); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
}
