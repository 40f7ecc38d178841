package runs

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/prune"
)

// LogRange selects a part of each log that exists when a LogPrinter starts.
type LogRange struct {
	Tail int // the number of lines at its end; negative: all
	// Since leaves out the logs that have not changed since then, and the earlier records of the logs of
	// daemons. Other logs have no dates: they are printed whole, and Say says so. Zero: no limit.
	Since time.Time
	Say   func(format string, args ...any)
}

// ParseSince parses a duration before now, such as 10m or 2d, or a time: a date, with or without the
// time of day, or a time of this day.
func ParseSince(text string, now time.Time) (at time.Time, err error) {
	if age, err := prune.ParseAge(text); err == nil {
		return now.Add(-age), nil
	}
	at, err = time.Parse(time.RFC3339Nano, text)
	// Without a zone, it is that of this machine.
	for _, given := range []string{strings.Replace(text, " ", "T", 1), now.Format(time.DateOnly) + "T" + text} {
		for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
			if err != nil {
				at, err = time.ParseInLocation(layout, given, now.Location())
			}
		}
	}
	switch {
	case err != nil:
		return at, errors.New("give a duration, such as 10m or 2d, or a time, such as 2026-11-21T12:00:00, " +
			"2026-11-21T12:00:00Z or 12:00")
	case at.After(now):
		return at, errors.New("it is in the future: give a time before now, with its date if it is not of today")
	}
	return at, nil
}

// startLogs sets the positions of logs that have none: those of the first call are in the range, and
// later ones are new.
func (r *LogPrinter) startLogs(ctx context.Context, folder *signal.DirSnapshot, names []string) error {
	isFirst := r.positions == nil
	if isFirst {
		r.positions = make(map[string]*logPosition)
	}
	var undated []string
	older := 0
	for _, name := range names {
		if r.positions[name] != nil {
			continue
		}
		at := new(logPosition)
		if strings.HasPrefix(name, "daemon-") || strings.HasPrefix(name, "sandbox-daemon-") {
			at.formatter = console.NewLogFormatter(r.Since)
		}
		if isFirst && (r.Tail >= 0 || !r.Since.IsZero()) {
			content, err := folder.ReadFile(ctx, name, 2)
			switch {
			case errors.Is(err, os.ErrNotExist): // it is new
			case err != nil:
				return err
			case content.ModTime.Before(r.Since):
				at.offset = content.Size
				older++
			case r.Tail >= 0:
				if at.offset, err = tailOffset(ctx, folder, name, content.Size, r.Tail); err != nil {
					return err
				}
			case at.formatter == nil && content.Size > 0:
				undated = append(undated, textutil.SingleLine(name, maxNameLength))
			}
		}
		r.positions[name] = at
	}
	if older > 0 && older == len(names) && r.Say != nil {
		r.Say("no log has changed since %s", r.Since.Format(time.DateTime))
	}
	if len(undated) > 0 && r.Say != nil {
		r.Say("the lines of %s have no dates: logs that have changed since %s are printed whole, and "+
			"--tail=N limits them", textutil.JoinLimited(undated, 3, ", "), r.Since.Format(time.DateTime))
	}
	return nil
}

// tailOffset returns the offset of the last lines of a log of size bytes.
func tailOffset(
	ctx context.Context, folder *signal.DirSnapshot, name string, size int64, lines int,
) (int64, error) {
	if lines == 0 {
		return size, nil
	}
	for end := size; end > 0; {
		start := max(0, end-maxReadBytes)
		data, err := folder.ReadRange(ctx, name, start, end-start)
		if err != nil {
			return 0, err
		}
		for i, char := range slices.Backward(data) {
			at := start + int64(i) + 1 // the line that begins there may be empty, except at the end
			if char != '\n' || at == size {
				continue
			}
			if lines--; lines == 0 {
				return at, nil
			}
		}
		end = start
	}
	return 0, nil
}
