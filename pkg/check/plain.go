package check

import (
	"strings"
	"unicode"
)

// mostShown bounds one text of a finding, in characters.
const mostShown = 300

// plain makes a text fit for one line of a terminal: what a device, a file or
// another node has told may hold anything.
func plain(text string) string { return cut(printable(text), mostShown) }

// printable has blanks for what breaks lines, and a mark for what can't be seen.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t' || unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		default:
			return r
		}
	}, strings.TrimSpace(text))
}

func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
