package pairs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// streams is how many connections a transfer has: by one, TCP is limited by one core of the receiver, far below what a
	// card of 100 Gb/s and more can do. iperf3 is given -P for the same.
	streams = 8
	// chunk is how much is written and read at a time. All buffers together have streams times that.
	chunk = 256 << 10
)

// conns are the connections of one transfer.
type conns []net.Conn

// each does something with each connection, side by side, until ctx ends at most, and returns the first error.
func (c conns) each(ctx context.Context, do func(net.Conn) error) error {
	defer context.AfterFunc(ctx, func() { closeAll(c) })()
	errs := make([]error, len(c))
	var doing sync.WaitGroup
	for i, conn := range c {
		doing.Go(func() { errs[i] = do(conn) })
	}
	doing.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return cmp.Or(errs...)
}

// send sends on all connections until the receiver has had enough and closes them.
func send(ctx context.Context, c conns) error {
	return c.each(ctx, func(conn net.Conn) error {
		data := make([]byte, chunk)
		if _, err := conn.Read(data[:1]); err != nil { // what came before it was ready would count as fast
			return fmt.Errorf("it did not begin: %s", reason(err))
		}
		for {
			if _, err := conn.Write(data); err != nil {
				return nil
			}
		}
	})
}

// receive asks for data, counts what comes on all connections for so long from the first of it on, and returns the rate
// in GB/s.
func receive(ctx context.Context, c conns, lasts time.Duration) (rate float64, err error) {
	var first sync.Once
	var mu sync.Mutex
	var began time.Time
	total := 0 // guarded by mu, as is began
	err = c.each(ctx, func(conn net.Conn) error {
		if _, err := conn.Write([]byte{0}); err != nil {
			return fmt.Errorf("it has gone: %s", reason(err))
		}
		data, got := make([]byte, chunk), 0
		for {
			n, err := conn.Read(data)
			if n > 0 {
				first.Do(func() {
					mu.Lock()
					began = time.Now()
					mu.Unlock()
					for _, each := range c {
						_ = each.SetReadDeadline(time.Now().Add(lasts))
					}
				})
			}
			if got += n; err != nil {
				mu.Lock()
				defer mu.Unlock()
				total += got
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					return fmt.Errorf("it ended in the middle: %s", reason(err))
				}
				return nil
			}
		}
	})
	took := time.Since(began)
	switch {
	case err != nil:
		return 0, err
	case total == 0:
		return 0, errNobody
	}
	return float64(total) / took.Seconds() / 1e9, nil
}

// reason is the text of an error without the operation and the address, which the sentence around it has already.
func reason(err error) string {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number.Error()
	}
	return err.Error()
}
