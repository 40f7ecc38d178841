package report

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Limits for texts that come from files.
const (
	maxLineLength     = 600  // characters of a line of a log
	maxSentenceLength = 2000 // characters of a sentence
	maxNameLength     = 80   // characters of a name
	maxCauseLines     = 40   // last lines of a log in the chain of failures
)

// sanitizeLine removes from a line all that a terminal or a page would interpret: escape sequences,
// control characters, and marks that change the writing direction. It cuts the line after the given
// number of characters.
func sanitizeLine(text string, limit int) string {
	if len(text) > 8*limit { // do not process the part that is cut off anyway
		begin := sanitizeLine(strings.ToValidUTF8(text[:8*limit], ""), limit)
		return begin + fmt.Sprintf(" (%d bytes in total)", len(text))
	}
	return strings.TrimRight(textutil.TruncateText(textutil.StripControls(text), limit+1), " ")
}

func sanitizeSentence(text string) string {
	return sanitizeLine(strings.ReplaceAll(strings.TrimSpace(text), "\n", " "), maxSentenceLength)
}

func sanitizeLines(lines []string) []string {
	return mapSlice(lines, func(line string) string { return sanitizeLine(line, maxLineLength) })
}

func mapSlice[T, U any](all []T, to func(T) U) (out []U) {
	for _, one := range all {
		out = append(out, to(one))
	}
	return out
}

// sanitizeSentences cleans the sentences, and drops those that are empty.
func sanitizeSentences(texts []string) []string {
	out := make([]string, 0, len(texts))
	for _, text := range texts {
		if text = sanitizeSentence(text); text != "" {
			out = append(out, text)
		}
	}
	return out
}
