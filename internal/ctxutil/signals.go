package ctxutil

import (
	"context"
	"os"
	"sync"
)

// WithSignals returns a context that ends at the first signal from signals for which cause returns
// an error, with that cause. Other signals are ignored. The channel again is closed at the second
// such signal. The function stop ends the handling of signals, and must be called.
func WithSignals(signals <-chan os.Signal, cause func(os.Signal) error) (ctx context.Context,
	again <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	second, stopped := make(chan struct{}), make(chan struct{})
	var handler sync.WaitGroup
	handler.Go(func() {
		for {
			select {
			case <-stopped:
				return
			case sig := <-signals:
				err := cause(sig)
				switch {
				case err == nil:
				case ctx.Err() == nil:
					cancel(err)
				default:
					close(second)
					return
				}
			}
		}
	})
	return ctx, second, func() {
		close(stopped)
		handler.Wait()
		cancel(nil)
	}
}
