// Package prune removes old runs from a log directory: only those that belong to this user, look
// exactly as bringupd makes them, and are over.
package prune

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// KeepPolicy selects the finished runs that are kept; the zero Keep keeps all.
type KeepPolicy struct {
	MaxAge  time.Duration // runs that ended less than this time ago; 0 means no limit
	MaxRuns int           // number of the newest runs; 0 means no limit
}

const day = 24 * time.Hour

var errKeepPolicy = errors.New("give a number of runs, or an age with its unit: 20, 30d or 36h")

// ParseKeepPolicy parses "20" (runs), "30d" or "36h". An empty text is the zero Keep.
func ParseKeepPolicy(text string) (KeepPolicy, error) {
	if text == "" {
		return KeepPolicy{}, nil
	}
	if runs, err := strconv.Atoi(text); err == nil {
		if runs < 1 {
			return KeepPolicy{}, errKeepPolicy
		}
		return KeepPolicy{MaxRuns: runs}, nil
	}
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.Atoi(days)
		if err != nil || n < 1 || n > int(math.MaxInt64/day) {
			return KeepPolicy{}, errKeepPolicy
		}
		return KeepPolicy{MaxAge: time.Duration(n) * day}, nil
	}
	age, err := time.ParseDuration(text)
	if err != nil || age <= 0 {
		return KeepPolicy{}, errKeepPolicy
	}
	return KeepPolicy{MaxAge: age}, nil
}

// String returns the form that ParseKeepPolicy parses.
func (k KeepPolicy) String() string {
	switch {
	case k.MaxRuns > 0:
		return strconv.Itoa(k.MaxRuns)
	case k.MaxAge > 0 && k.MaxAge%day == 0:
		return strconv.Itoa(int(k.MaxAge/day)) + "d"
	case k.MaxAge > 0:
		return textutil.FlagDuration(k.MaxAge)
	default:
		return ""
	}
}

// RemovesRuns reports whether any runs may be removed: the zero Keep keeps all.
func (k KeepPolicy) RemovesRuns() bool { return k != KeepPolicy{} }
