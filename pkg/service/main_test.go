package service

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
)

func TestMain(m *testing.M) {
	// A guard is this binary again, and with the race detector it sleeps for a second before it exits.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	// Tests of another package lock the memory of a process, whose environment the kernel then hands
	// out late; the goroutine that reads it is given up by design and ends with the answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(
		"github.com/bringupd/bringupd/pkg/process.(*procScanner).readEnviron.func1"))
}

// serve starts a program, and calls onDeath when it fails from then on.
func (c *Children) serve(ctx context.Context, p Program, onDeath func(*health.Failure)) error {
	running, err := c.StartProgram(ctx, p)
	if err != nil || running == nil {
		return err
	}
	c.contexts.Background(func(context.Context) {
		if f := running.AwaitFailure(c.contexts.Run); f != nil {
			onDeath(f)
		}
	})
	return nil
}

// startService starts a service as a program that must not end.
func (c *Children) startService(ctx context.Context, service *framework.Service, within time.Duration,
	onDeath func(*health.Failure)) error {
	describe := func() (*framework.Service, error) { return service, nil }
	return c.serve(ctx, Program{Describe: describe, Kind: health.ServiceDied, Within: within}, onDeath)
}
