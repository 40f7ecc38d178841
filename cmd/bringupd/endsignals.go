package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
)

// printMessage prints progress to standard error.
func (inv *invocation) printMessage(format string, args ...any) {
	// the text may quote a record
	_, _ = inv.streams.Err.Write(textutil.EscapeControls(fmt.Appendf(nil, "bringupd: "+format+"\n", args...)))
}

type signalError struct{ sig os.Signal }

func (e *signalError) Error() string {
	return "ended by " + unix.SignalName(e.sig.(syscall.Signal))
}

func (e *signalError) exitCode() int {
	kind := health.Terminated
	if e.sig == os.Interrupt {
		kind = health.Interrupted
	}
	return codeOf(kind)
}

// withSignals calls do with a context that ends at a signal. If a signal has ended it, the exit
// code is the signal's, and there is no error.
func (inv *invocation) withSignals(do func(ctx context.Context, again <-chan struct{}) error) error {
	ctx, again, stop := inv.handleSignals()
	defer stop()
	err := do(ctx, again)
	if by, isSignal := errors.AsType[*signalError](context.Cause(ctx)); isSignal {
		inv.exitCode = by.exitCode()
		return nil
	}
	return err
}

// maxFileBytes and fileTimeout are the maximum size of a file that the user names, and the timeout
// for reading it.
const (
	maxFileBytes = 1 << 20
	fileTimeout  = time.Minute
)

// readUserFile reads a file that the user names, which may be a named pipe or the result of
// "<(...)" in a shell. what describes it in errors. If a signal ends the reading, the error is a
// *signalError.
func (inv *invocation) readUserFile(what, path string) ([]byte, error) {
	ctx, _, stop := inv.handleSignals()
	defer stop()
	within, cancel := context.WithTimeoutCause(ctx, fileTimeout, fmt.Errorf("no data within %s", fileTimeout))
	defer cancel()
	text, err := files.ReadLimited(within, path, maxFileBytes)
	switch by, isSignal := errors.AsType[*signalError](context.Cause(ctx)); {
	case isSignal:
		return nil, by
	case err != nil:
		return nil, config.NodeUsageErrorf("cannot read %s: %v", what, err)
	}
	return text, nil
}

// runAbandonable calls do with a context that ends at a signal. At a second signal it returns
// without waiting for do. It also returns whether a signal has arrived.
func (inv *invocation) runAbandonable(do func(ctx context.Context) error) (signalled bool, err error) {
	err = inv.withSignals(func(ctx context.Context, again <-chan struct{}) (err error) {
		over := make(chan error, 1)
		go func() { over <- do(ctx) }()
		select {
		case err = <-over:
		case <-again:
		}
		by, isSignal := errors.AsType[*signalError](context.Cause(ctx))
		if signalled = isSignal; !isSignal {
			return err
		}
		if err != nil && !errors.Is(err, by) {
			inv.printMessage("%v", err)
		}
		inv.printMessage("%v", by)
		return nil
	})
	return signalled, err
}

// handleSignals returns a context that ends at the first signal to end, a channel that is closed at
// the second one, and a function that stops the handling of signals.
func (inv *invocation) handleSignals() (ctx context.Context, again <-chan struct{}, stop func()) {
	return ctxutil.WithSignals(inv.signalChan, func(sig os.Signal) error {
		if sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP {
			return &signalError{sig}
		}
		return nil
	})
}
