package runs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/progress"
)

const (
	// maxBlamedHosts is the maximum number of blamed nodes that a summary names, and maxHostLength the
	// maximum length of each name.
	maxBlamedHosts = 10
	maxHostLength  = 64
)

// sinceLayouts are the forms of a date that ParseSince accepts, in this machine's time zone unless
// they have one.
var sinceLayouts = []string{
	time.DateOnly, "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04", time.DateTime, time.RFC3339,
}

var errSince = errors.New("give a duration with its unit, or a date: 36h, 7d, 2026-11-20 or 2026-11-20T08:00")

// ParseSince parses the beginning of a period that ends now: its length, such as 36h or 7d, or a
// date, which begins at midnight if it has no time.
func ParseSince(text string, now time.Time) (time.Time, error) {
	if days, found := strings.CutSuffix(text, "d"); found {
		const maxDays = int(math.MaxInt64 / int64(24*time.Hour))
		n, err := strconv.Atoi(days)
		if err != nil || n < 1 || n > maxDays {
			return time.Time{}, errSince
		}
		return now.AddDate(0, 0, -n), nil
	}
	if length, err := time.ParseDuration(text); err == nil {
		if length <= 0 {
			return time.Time{}, errSince
		}
		return now.Add(-length), nil
	}
	for _, layout := range sinceLayouts {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, nil
		}
	}
	return time.Time{}, errSince
}

// KeepSince removes the runs that had ended before a time. A run without a result counts as ended if
// it gives no sign of life; then only its start is known.
func (l *List) KeepSince(since time.Time) {
	l.Since = &since
	l.Runs = slices.DeleteFunc(l.Runs, func(s Summary) bool {
		if s.EndedAt != nil {
			return s.EndedAt.Before(since)
		}
		return s.Silent && s.StartedAt.Before(since)
	})
}

// summaryText describes all runs of the list in a few lines: how many there are in each state,
// the restarts among them, their goodput, and the nodes that caused the end of most runs.
func (l List) summaryText() string {
	var b strings.Builder
	count := len(l.Runs)
	fmt.Fprintf(&b, "%d %s since %s", count, textutil.PluralForm(count, "run"), l.Since.Format(time.DateTime))
	// Count the states, and the verdicts of the failed runs.
	states, verdicts, blamed := make(map[string]int), make(map[string]int), make(map[string]int)
	restarts := 0
	var goodputs []float64
	for _, s := range l.Runs {
		states[s.stateWord()]++
		if s.Code != nil && *s.Code != 0 {
			verdicts[s.Word]++
		}
		if s.Restarts > 0 {
			restarts++
		}
		if s.Goodput != nil {
			goodputs = append(goodputs, *s.Goodput)
		}
		for _, host := range s.blamedHosts {
			blamed[textutil.TruncateText(textutil.StripControls(host), maxHostLength)]++
		}
	}
	if len(states) > 0 {
		b.WriteString(": " + strings.Join(describeCounts(states), ", "))
	}
	b.WriteString("\n")
	if len(verdicts) > 0 {
		b.WriteString("verdicts of the failed runs: " + strings.Join(describeCounts(verdicts), ", ") + "\n")
	}
	if restarts > 0 {
		fmt.Fprintf(&b, "restarts and requeues: %d\n", restarts)
	}
	if len(goodputs) > 0 {
		slices.Sort(goodputs)
		count, format := len(goodputs), progress.FormatGoodput
		fmt.Fprintf(&b, "goodput of %d %s: %s to %s, median %s\n", count, textutil.PluralForm(count, "run"),
			format(goodputs[0]), format(goodputs[count-1]), format(goodputs[count/2]))
	}
	if len(blamed) > 0 {
		hosts := textutil.JoinLimited(describeCounts(blamed), maxBlamedHosts, ", ")
		b.WriteString("nodes blamed, by the number of runs: " + hosts + "\n")
	}
	return b.String()
}

// describeCounts returns each word with its number, the most frequent one first.
func describeCounts(counts map[string]int) (words []string) {
	order := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for _, word := range order {
		words = append(words, fmt.Sprintf("%d %s", counts[word], word))
	}
	return words
}
