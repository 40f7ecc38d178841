package timeline

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// mostShown bounds in characters a text that is shown on one line.
const mostShown = 400

// tame makes a text of a run directory fit for one line of a terminal, for it may
// hold anything: what moves the cursor, turns the writing around, or has no end.
func tame(text string) string {
	if most := mostShown * utf8.UTFMax; len(text) > most {
		text = text[:most] // the rest need not be looked at
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		default:
			return r
		}
	}, strings.TrimSpace(strings.ToValidUTF8(text, "�")))
	if runes := []rune(text); len(runes) > mostShown {
		return string(runes[:mostShown-1]) + "…"
	}
	return text
}

func tameAll(texts []string) []string {
	var all []string
	for _, text := range texts {
		all = append(all, tame(text))
	}
	return all
}

// span is a time for people: more digits than they can use hide the rest.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(time.Second / 10).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	default:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
}
