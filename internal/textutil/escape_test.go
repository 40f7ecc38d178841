package textutil

import (
	"bytes"
	"testing"
)

func TestInert(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, want string }{
		{"plain", "a\tb\nü 漢\n", "a\tb\nü 漢\n"},
		{"colours and titles", "\x1b[31mred\x1b]0;title\x07", `\x1b[31mred\x1b]0;title\x07`},
		{"controls of eight bits", "\u009b31m", `\u009b31m`},
		{"carriage return and backspace", "a\rb\b", `a\x0db\x08`},
		{"delete and null", "\x7f\x00", `\x7f\x00`},
		{"direction", "a\u202eb\u2066c", `a\u202eb\u2066c`},
		{"no text", "\xff\xc3(", `\xff\xc3(`},
		{"markup", "<script>", "<script>"},
	} {
		for _, size := range []int{1, 2, 3, 1000} {
			var to bytes.Buffer
			w := &EscapingWriter{Writer: &to}
			for rest := []byte(tc.text); len(rest) > 0; {
				n := min(size, len(rest))
				if _, err := w.Write(rest[:n]); err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if to.String() != tc.want {
				t.Errorf("%s, %d bytes at a time: %q, not %q", tc.name, size, to.String(), tc.want)
			}
		}
	}
}
