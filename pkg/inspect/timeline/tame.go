package timeline

import (
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// mostShown bounds in characters a text that is shown on one line.
const mostShown = 400

// tame makes a text of a run directory fit for one line of a terminal, for it may
// hold anything: what moves the cursor, turns the writing around, or has no end.
func tame(text string) string { return textutil.SingleLine(text, mostShown) }

func tameAll(texts []string) []string {
	var all []string
	for _, text := range texts {
		all = append(all, tame(text))
	}
	return all
}

// span is a time for people: of hours, no more than the minutes.
func span(d time.Duration) string {
	if d >= time.Hour {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return textutil.RoundedDuration(d, 10*time.Second)
}
