// Package prune removes old runs from a log directory: only those that belong to this user, look
// exactly as bringupd makes them, and are over.
package prune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Keep selects the finished runs that are kept; the zero Keep keeps all.
type Keep struct {
	Age  time.Duration // runs that ended less than this time ago; 0 means no limit
	Runs int           // number of the newest runs; 0 means no limit
}

const day = 24 * time.Hour

var errKeep = errors.New("give a number of runs, or a time with its unit, as in 20, 30d or 36h")

// ParseKeep parses "20" (runs), "30d" or "36h". An empty text is the zero Keep.
func ParseKeep(text string) (Keep, error) {
	if text == "" {
		return Keep{}, nil
	}
	if runs, err := strconv.Atoi(text); err == nil {
		if runs < 1 {
			return Keep{}, errKeep
		}
		return Keep{Runs: runs}, nil
	}
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.Atoi(days)
		if err != nil || n < 1 || n > int(math.MaxInt64/day) {
			return Keep{}, errKeep
		}
		return Keep{Age: time.Duration(n) * day}, nil
	}
	age, err := time.ParseDuration(text)
	if err != nil || age <= 0 {
		return Keep{}, errKeep
	}
	return Keep{Age: age}, nil
}

// String returns the form that ParseKeep parses.
func (k Keep) String() string {
	switch {
	case k.Runs > 0:
		return strconv.Itoa(k.Runs)
	case k.Age > 0 && k.Age%day == 0:
		return strconv.Itoa(int(k.Age/day)) + "d"
	case k.Age > 0:
		return prose.FlagTime(k.Age)
	default:
		return ""
	}
}

// Wanted reports whether any runs may be removed: the zero Keep keeps all.
func (k Keep) Wanted() bool { return k != Keep{} }

// behindTime is the timeout for removing old runs during a job.
const behindTime = 5 * time.Minute

var errBehind = errors.New("the time for it is over: the next run goes on")

// Behind returns a task that removes old runs beside the head's own run directory dir: those with a
// result that are not kept. It logs one line. If the file system hangs, the task is abandoned when
// ctx ends.
func (k Keep) Behind(dir *signal.Dir, meter *signal.Meter, say func(string)) func(ctx context.Context) {
	return func(ctx context.Context) {
		if !k.Wanted() {
			return
		}
		ctx, cancel := context.WithTimeoutCause(ctx, behindTime, errBehind)
		defer cancel()
		begin := time.Now()
		order := Order{LogDir: filepath.Dir(dir.Path()), Keep: k, Own: dir.Name(), Meter: meter, Say: func(string, string) {}}
		counts, err := pause.Bounded(ctx, 0, func() (Counts, error) { return order.Run(ctx) })
		line := fmt.Sprintf("old runs removed from this log directory: %d (--keep=%s), in %s", counts.Removed, k, prose.Brief(time.Since(begin)))
		if err != nil {
			line += fmt.Sprintf("; some may be left: %v", err)
		}
		say(line)
	}
}
