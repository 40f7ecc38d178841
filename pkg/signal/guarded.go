package signal

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// guarded makes calls into the share from a goroutine of their own and gives
// them up when ctx ends: the goroutine of a call that never returns is the one
// thing here that nobody waits for, because the kernel won't let go of it.
func guarded[T any](ctx context.Context, m *Meter, op, path string, call func() (T, error)) (T, error) {
	if ctx.Err() != nil {
		var none T
		return none, &StallError{Op: op, Path: path, Cause: context.Cause(ctx)}
	}
	return begun(ctx, m, op, path, call)
}

// begun is guarded for calls that are made in any case, also where ctx ends
// first.
func begun[T any](ctx context.Context, m *Meter, op, path string, call func() (T, error)) (T, error) {
	begin := time.Now()
	asked := m.begin(op, path)
	value, err := pause.Bounded(ctx, 0, func() (T, error) {
		defer m.end(asked)
		return call()
	})
	if err == pause.ErrHangs {
		err = &StallError{Op: op, Path: path, After: time.Since(begin), Cause: context.Cause(ctx)}
	}
	return value, err
}

// do is guarded for calls that return nothing.
func do(ctx context.Context, m *Meter, op, path string, call func() error) error {
	_, err := guarded(ctx, m, op, path, func() (struct{}, error) { return struct{}{}, call() })
	return err
}
