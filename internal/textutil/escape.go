package textutil

import (
	"fmt"
	"io"
	"slices"
	"unicode"
	"unicode/utf8"
)

// EscapingWriter forwards text so that a terminal shows all of it and executes none of it.
type EscapingWriter struct {
	Writer     io.Writer
	incomplete []byte // an incomplete character
}

// Write implements io.Writer.
func (w *EscapingWriter) Write(data []byte) (int, error) {
	text := append(w.incomplete, data...)
	w.incomplete = nil
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if tail := text[len(text)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				w.incomplete = slices.Clone(tail)
				text = text[:len(text)-back]
			}
			break
		}
	}
	if _, err := w.Writer.Write(EscapeControls(text)); err != nil {
		return 0, err
	}
	return len(data), nil
}

// EscapeControls escapes what a terminal might execute: control characters except newline and tab,
// characters that change the direction of the text, and bytes that are not text.
func EscapeControls(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t':
			out = append(out, byte(r))
		case r == utf8.RuneError && size == 1, r < ' ', r == 0x7f:
			out = fmt.Appendf(out, `\x%02x`, text[0])
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029':
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, text[:size]...)
		}
		text = text[size:]
	}
	return out
}
