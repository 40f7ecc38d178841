package pmi

import (
	"context"
	"io"
	"sync"
)

// serveRequests passes the requests of a rank to answer, one after the other, until answer returns an
// error, the connection ends or ctx ends. It closes the connection. read passes each request to accept,
// until that returns false: it runs on a goroutine of its own, so that the end of the connection is
// noticed while a request waits.
func serveRequests[R any](
	ctx context.Context, conn io.Closer, read func(accept func(R) bool), answer func(ctx context.Context, r R) error,
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	requests := make(chan R)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel() // the rank is gone; end the request that waits
		defer close(requests)
		read(func(r R) bool {
			select {
			case requests <- r:
				return true
			case <-ctx.Done():
				return false
			}
		})
	})
	for r := range requests {
		if answer(ctx, r) != nil {
			break
		}
	}
	cancel()
	_ = conn.Close()
	reading.Wait()
}
