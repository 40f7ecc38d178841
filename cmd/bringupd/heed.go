package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/health"
)

// say tells how far it is, beside the result.
func (inv *invocation) say(format string, args ...any) {
	fmt.Fprintf(inv.files.Err, "bringupd: "+format+"\n", args...)
}

// stopped says which signal ended it.
type stopped struct{ sig os.Signal }

func (e *stopped) Error() string { return "ended by " + signalName(e.sig) }

// code is that of a command that was ended by it.
func (e *stopped) code() int {
	kind := health.Terminated
	if e.sig == os.Interrupt {
		kind = health.Interrupted
	}
	return health.OutcomeOf(kind).Code
}

func signalName(sig os.Signal) string { return unix.SignalName(sig.(syscall.Signal)) }

// heed returns a context that ends at the first signal to end, a channel that
// is closed at the second one, and what stops heeding.
func (inv *invocation) heed() (ctx context.Context, again <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	second, over := make(chan struct{}), make(chan struct{})
	var heeding sync.WaitGroup
	heeding.Go(func() {
		for {
			select {
			case <-over:
				return
			case sig := <-inv.signals:
				switch {
				case sig != syscall.SIGINT && sig != syscall.SIGTERM && sig != syscall.SIGHUP:
				case ctx.Err() == nil:
					cancel(&stopped{sig})
				default:
					close(second)
					return
				}
			}
		}
	})
	return ctx, second, func() {
		close(over)
		heeding.Wait()
		cancel(nil)
	}
}
