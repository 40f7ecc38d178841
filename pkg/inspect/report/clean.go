package report

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
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
	return strings.TrimRight(textutil.TruncateText(textutil.StripControls(text), most+1), " ")
}

// words is clean for a sentence, which may have had several lines.
func words(text string) string {
	return clean(strings.ReplaceAll(strings.TrimSpace(text), "\n", " "), mostWords)
}

// mapped is what becomes of each.
func mapped[T, U any](all []T, to func(T) U) (out []U) {
	for _, one := range all {
		out = append(out, to(one))
	}
	return out
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

// plural counts things: "1 node", "1,024 nodes".
func plural(n int, what string) string {
	return textutil.GroupThousands(n) + " " + textutil.PluralForm(n, what)
}
