// Package textutil formats texts for people: times, sizes, numbers and lists in few words, and
// foreign texts so that they fit on a line and contain nothing that a terminal would execute.
package textutil

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// TruncateText limits a text to the given number of characters. If the text is longer, the last
// character of the result is an ellipsis.
func TruncateText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:max(0, limit-1)]) + "…"
	}
	return text
}

// SingleLine makes a text fit on one line of a terminal, limited to the given number of characters.
// The text may come from a device, a file or another node, and contain anything.
func SingleLine(text string, limit int) string {
	return IndentedLine(strings.TrimLeftFunc(text, unicode.IsSpace), limit)
}

// IndentedLine is like [SingleLine], but keeps the indentation.
func IndentedLine(text string, limit int) string {
	if enough := limit * utf8.UTFMax; len(text) > enough {
		text = text[:enough] // the rest is not needed
	}
	return TruncateText(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		default:
			return r
		}
	}, strings.TrimRightFunc(strings.ToValidUTF8(text, "\ufffd"), unicode.IsSpace)), limit)
}

// StripControls returns a text that a program has written for a terminal, without what a terminal
// would execute: escape sequences, control characters (including newlines), and characters that
// change the direction of the text.
func StripControls(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r) || changesDirection(r):
			return -1
		}
		return r
	}, escapeSequence().ReplaceAllString(text, ""))
}

// TerminalLine returns a line as it appeared on a terminal: for a progress bar, its last state.
func TerminalLine(line string) string {
	line = strings.TrimRight(line, "\r\n")
	line = strings.ReplaceAll(line[strings.LastIndexByte(line, '\r')+1:], "\n", " ")
	return StripControls(strings.ToValidUTF8(line, "?"))
}

// changesDirection reports whether a rune changes the direction of the text, or ends a line.
func changesDirection(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f ||
		r == 0x2028 || r == 0x2029
}

// escapeSequence matches a terminal's escape sequence: a control sequence, a title or similar up to a
// bell or another escape, or another sequence. It matches the escape alone if the rest is incomplete.
var escapeSequence = CompileLazily("\x1b(?:\\[[^@-~]*[@-~]|[\\]P_^][^\a\x1b]*\a?|[!-OQ-Z\\\\`-~])?")
