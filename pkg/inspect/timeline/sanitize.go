package timeline

import (
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// maxTextLength is the maximum length in characters of a text on one line.
const maxTextLength = 400

// sanitizeText makes a text from a run directory safe for one line of a terminal. The text is
// untrusted: it may move the cursor, reverse the writing direction, or be very long.
func sanitizeText(text string) string { return textutil.SingleLine(text, maxTextLength) }

func formatDuration(d time.Duration) string {
	if d >= time.Hour {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return textutil.RoundedDuration(d, 10*time.Second)
}
