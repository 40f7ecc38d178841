package report

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

const (
	// maxSentenceLength is the maximum number of characters of a text, unless its field has another one.
	maxSentenceLength = 2000
	maxCauseLines     = 40 // last lines of a log in the chain of failures
)

// sanitizeText removes from a text all that a terminal or a page would interpret: escape sequences,
// control characters, line ends, and marks that change the writing direction. It cuts the text after
// the given number of characters.
func sanitizeText(text string, limit int) string {
	if len(text) > 8*limit { // do not process the part that is cut off anyway
		begin := sanitizeText(strings.ToValidUTF8(text[:8*limit], ""), limit)
		return begin + fmt.Sprintf(" (%d bytes in total)", len(text))
	}
	text = textutil.StripControls(strings.ReplaceAll(text, "\n", " "))
	return strings.TrimRight(textutil.TruncateText(text, limit+1), " ")
}
