package framework

import (
	"context"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Settle looks until look has returned nil at every look of the settle time,
// and returns nil then. A node that is counted and restarts a moment later is
// what the settle time is for. When ctx ends before, the error wraps its cause
// and tells what was seen last.
func Settle(ctx context.Context, settle time.Duration, look func(ctx context.Context) error) error {
	const pace, bound = 250 * time.Millisecond, 5 * time.Second
	var since time.Time // of the first nil in a row; zero: the last look failed
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
		if !pause.For(ctx, pace) {
			return fmt.Errorf("%w (last seen: %v)", context.Cause(ctx), last)
		}
	}
}
