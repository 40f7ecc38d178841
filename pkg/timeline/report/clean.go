package report

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The most that is shown of what a file says.
const (
	mostLine  = 600  // runes of a line of a log
	mostWords = 2000 // runes of a sentence
)

// clean is a line without anything that a terminal or a page would obey: no
// escape sequences, no control characters, nothing that turns the direction of
// the text; and not longer than most.
func clean(text string, most int) string {
	if len(text) > 8*most { // what is cut off anyhow is not looked at
		return clean(strings.ToValidUTF8(text[:8*most], ""), most) + fmt.Sprintf(" (%d bytes in all)", len(text))
	}
	var b strings.Builder
	count := 0
	for len(text) > 0 {
		if n := escape(text); n > 0 {
			text = text[n:]
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		switch {
		case r == '\t':
			r = ' '
		case turns(r) || unicode.IsControl(r):
			continue
		}
		if count++; count > most {
			b.WriteString("…")
			break
		}
		b.WriteRune(r)
	}
	return strings.TrimRight(b.String(), " ")
}

// words is clean for a sentence, which may have had several lines.
func words(text string) string {
	return clean(strings.ReplaceAll(strings.TrimSpace(text), "\n", " "), mostWords)
}

func allWords(texts []string) []string {
	out := make([]string, 0, len(texts))
	for _, text := range texts {
		if text = words(text); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// turns tells whether a rune turns the direction of what follows.
func turns(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f || r == 0x2028 || r == 0x2029
}

// escape returns the length of the terminal's escape sequence that the text
// begins with; 0 where it begins with none.
func escape(text string) int {
	if len(text) < 2 || text[0] != 0x1b {
		return 0
	}
	switch text[1] {
	case '[':
		for i := 2; i < len(text); i++ {
			if text[i] >= 0x40 && text[i] <= 0x7e {
				return i + 1
			}
		}
		return len(text)
	case ']', 'P', '_', '^':
		for i := 2; i < len(text); i++ {
			if text[i] == 0x07 {
				return i + 1
			}
			if text[i] == 0x1b && i+1 < len(text) && text[i+1] == '\\' {
				return i + 2
			}
		}
		return len(text)
	default:
		return 2
	}
}

// brief is a time as people say it.
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "−" + brief(-d)
	case d == 0:
		return "0"
	case d < 100*time.Microsecond:
		return fmt.Sprintf("%d µs", max(1, d.Round(time.Microsecond)/time.Microsecond))
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond)/time.Millisecond)
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Hour:
		d = d.Round(time.Second)
		return fmt.Sprintf("%d min %02d s", d/time.Minute, d%time.Minute/time.Second)
	default:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%d h %02d min", d/time.Hour, d%time.Hour/time.Minute)
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%s %ss", grouped(int64(n)), what)
}

// grouped is a number with commas.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
