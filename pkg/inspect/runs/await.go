package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

const (
	// firstAsk is when the launcher is asked first for the job of a run that does not exist yet. The
	// interval doubles up to maxAskInterval.
	firstAsk       = 5 * time.Second
	maxAskInterval = 30 * time.Second
	askTimeout     = 10 * time.Second
	// secondWord is the time after which a wait says that nothing is known of the job.
	secondWord = time.Minute
	// UnknownLimit is the default limit of a wait if nothing is known of the job.
	UnknownLimit = time.Hour
)

// ErrUnknownLimit reports that Await has waited for UnknownLimit.
var ErrUnknownLimit = errors.New("timed out: no launcher knows its job")

// Waiter waits for runs that do not exist yet.
type Waiter struct {
	// Ask asks for the state of a job with this name: see launcher.AskJobState.
	Ask func(ctx context.Context, name string) launcher.JobState
	// Say prints a message for the user.
	Say func(format string, args ...any)
	// Unlimited reports that the user has limited the wait, or has chosen not to. Otherwise
	// UnknownLimit applies.
	Unlimited bool
}

// Await calls find until the run exists, and returns its directory. If it does not exist at first,
// Await says so, and waits until ctx ends; later errors of the file system may be temporary. It asks
// the launcher about the job now and then. A job that has ended creates no run any more: the error is
// then a *NoRunError. It is ErrUnknownLimit after UnknownLimit without an answer.
func (w Waiter) Await(ctx context.Context, find func(context.Context) (string, error)) (string, error) {
	began := time.Now()
	nextAsk, interval := firstAsk, firstAsk
	var state launcher.JobState // the last answer
	hasSaid := false
	for isFirst := true; ; isFirst = false {
		polling, cancel := withPollTimeout(ctx)
		path, err := find(polling)
		cancel()
		none, isMissing := errors.AsType[*NoRunError](err)
		if err == nil || isFirst && !isMissing {
			return path, err
		}
		waited := time.Since(began)
		switch {
		case isFirst:
			w.Say("waiting for %s in %s: %s", none.Wanted(), none.LogDir, none.Found())
		case isMissing && waited >= nextAsk:
			wasOver := state.IsOver
			state = w.ask(ctx, none.Name)
			if wasOver && state.IsOver { // the run may have appeared after the first of the two answers
				none.JobState = state.Words
				return "", none
			}
			nextAsk, interval = waited+interval, min(2*interval, maxAskInterval)
		}
		switch {
		case !isMissing || state.IsOver || waited < secondWord:
		case !state.IsKnown && !w.Unlimited && waited >= UnknownLimit:
			return "", ErrUnknownLimit
		case !hasSaid:
			w.Say("still waiting for %s in %s: %s", none.Wanted(), none.LogDir, w.describe(state))
			hasSaid = true
		}
		if !ctxutil.SleepContext(ctx, pollInterval) {
			return "", context.Cause(ctx)
		}
	}
}

// describe says what a wait waits for.
func (w Waiter) describe(state launcher.JobState) string {
	switch {
	case state.IsKnown:
		return "its job has not ended (" + state.Words + ")"
	case w.Unlimited:
		return "no launcher here knows its job"
	default:
		return fmt.Sprintf("no launcher here knows its job; the wait ends after %s, or another --timeout",
			textutil.FlagDuration(UnknownLimit))
	}
}

// ask asks for the state of a job. Nothing is known of a run without a name.
func (w Waiter) ask(ctx context.Context, name string) launcher.JobState {
	if name == "" {
		return launcher.JobState{}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, errPollTimeout)
	defer cancel()
	return w.Ask(ctx, name)
}
