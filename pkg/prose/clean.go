// Package prose writes what people read: times, sizes, numbers and lists in few
// words, and texts of others so that they fit a line and a terminal obeys none of them.
package prose

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Cut leaves at most that many characters of a text. A mark, which is the last of them, tells that there were more.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:max(0, most-1)]) + "…"
	}
	return text
}

// Line makes a text fit for one line of a terminal, of at most that many characters: what a device, a file or another
// node has told may hold anything.
func Line(text string, most int) string {
	if enough := most * utf8.UTFMax; len(text) > enough {
		text = text[:enough] // the rest need not be looked at
	}
	return Cut(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		default:
			return r
		}
	}, strings.TrimSpace(strings.ToValidUTF8(text, "\ufffd"))), most)
}

// Plain is text that a program has written for a terminal, without what a terminal would obey: no escape sequences,
// no control characters (newlines among them), nothing that turns the direction of the text.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r) || turns(r):
			return -1
		}
		return r
	}, withoutEscapes(text))
}

// Said is a line that a program has written for a terminal, as it was read there: of a progress bar, the last state.
func Said(line string) string {
	line = strings.TrimRight(line, "\r\n")
	line = strings.ReplaceAll(line[strings.LastIndexByte(line, '\r')+1:], "\n", " ")
	return Plain(strings.ToValidUTF8(line, "?"))
}

// turns tells whether a rune turns the direction of what follows, or ends a line.
func turns(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f || r == 0x2028 || r == 0x2029
}

func withoutEscapes(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "\x1b")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		text = after[escape(after):]
	}
}

// escape returns the length of the rest of a terminal's escape sequence, with which the text goes on behind the
// escape itself; 0 where that is none, or has no end.
func escape(text string) int {
	if text == "" {
		return 0
	}
	switch c := text[0]; {
	case c == '[':
		end := strings.IndexFunc(text[1:], func(r rune) bool { return r >= 0x40 && r <= 0x7e })
		if end < 0 {
			return 0
		}
		return end + 2
	case strings.IndexByte("]P_^", c) >= 0: // a title and the like: to a bell, or to another escape
		end := strings.IndexAny(text, "\a\x1b")
		if end < 0 {
			return len(text)
		}
		if text[end] == '\a' {
			end++
		}
		return end
	case c > ' ' && c < 0x7f:
		return 1
	default:
		return 0
	}
}
