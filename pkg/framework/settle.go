package framework

import (
	"context"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// AwaitStable polls until look has returned nil at every poll for the settle time, and then returns
// nil. The settle time detects a node that is listed and restarts a moment later. If ctx ends
// before, the error wraps its cause and includes the last result.
func AwaitStable(ctx context.Context, settle time.Duration, look func(ctx context.Context) error) error {
	const pace, bound = 250 * time.Millisecond, 5 * time.Second
	var since time.Time // of the first nil in a row; zero: the last poll failed
	var last error
	for {
		begin := time.Now()
		bounded, cancel := context.WithTimeout(ctx, bound)
		err := look(bounded)
		cancel()
		switch {
		case err != nil:
			last, since = err, time.Time{}
		case since.IsZero():
			since = begin
		}
		if err == nil && time.Since(since) >= settle {
			return nil
		}
		if !ctxutil.SleepContext(ctx, pace) {
			return fmt.Errorf("%w (last seen: %v)", context.Cause(ctx), last)
		}
	}
}
