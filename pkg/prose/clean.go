// Package prose writes what people read: times, sizes, numbers and lists in few
// words, and texts of others so that they fit a line and a terminal obeys none of them.
package prose

import (
	"regexp"
	"strings"
	"sync"
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

// escapes are a terminal's: a control sequence, which has an end; a title and the like, to a bell or to another escape;
// and a single character. What is none of them loses the escape alone. Who needs them compiles them: most commands don't.
var escapes = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\x1b(?:\[[^@-~]*[@-~]|[\]P_^][^\a\x1b]*\a?|[!-OQ-Z\\\x60a-~])?`)
})

func withoutEscapes(text string) string {
	if !strings.Contains(text, "\x1b") {
		return text
	}
	return escapes().ReplaceAllString(text, "")
}
