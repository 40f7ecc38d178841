package service

import (
	"context"
	"os"
	"slices"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
)

// warm is a process of a service that has been started in advance and waits for its order on
// standard input.
type warm struct {
	child process.Handle
	env   []string
	order *os.File
}

// warmTime bounds how long a node waits for a start in advance.
const warmTime = 5 * time.Second

// Warm starts a service's process in advance, if the service supports that. [Children.Serve] then
// continues with it. Errors are ignored here, because [Children.Serve] tries again and reports
// them.
func (c *Children) Warm(ctx context.Context, service *framework.Service) {
	if service == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, warmTime, health.ErrDeadline)
	defer cancel()
	w, err := c.warmUp(ctx, service)
	if err != nil || w == nil {
		c.cfg.Log.Debug("cannot start a service ahead of its time", zap.String("service", service.Name), zap.Error(err))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.warm = w
}

// warmUp starts a waiting process of the service. It returns nil if the service has none.
func (c *Children) warmUp(ctx context.Context, service *framework.Service) (*warm, error) {
	if service.Warm == nil {
		return nil, nil
	}
	argv, err := Answered(ctx, func() ([]string, error) { return service.Warm(), nil })
	if err != nil || argv == nil {
		return nil, err
	}
	told, order, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	child, err := c.Start(ctx, process.Spec{Name: service.Name, Argv: argv, Env: service.Env, Stdin: told})
	_ = told.Close()
	if err != nil {
		_ = order.Close()
		return nil, err
	}
	return &warm{child: child, env: service.Env, order: order}, nil
}

// begin starts the service's process, or continues with the one that was started in advance.
func (c *Children) begin(ctx context.Context, service *framework.Service) (process.Handle, error) {
	c.mu.Lock()
	w := c.warm
	c.warm = nil
	c.mu.Unlock()
	// Use the process only if it still runs with the right environment.
	if w != nil && (Ended(w.child) || !sameEnv(w.env, service.Env)) {
		c.discard(w)
		w = nil
	}
	if w == nil {
		var err error
		if w, err = c.warmUp(ctx, service); err != nil {
			return nil, err
		}
	}
	if w == nil {
		return c.Start(ctx, process.Spec{Name: service.Name, Argv: service.Argv, Env: service.Env})
	}
	defer func() { _ = w.order.Close() }()
	_, err := w.order.Write(append(slices.Clip(service.Order), '\n'))
	if err != nil && !Ended(w.child) { // otherwise its exit explains more
		return nil, err
	}
	return w.child, nil
}

// discard ends a process that is not used.
func (c *Children) discard(w *warm) {
	_ = w.order.Close()
	w.child.Stop(c.life.Hurry, 0, syscall.SIGKILL)
	c.Disown(w.child)
}

// sameEnv reports whether two environments have the same entries, in any order.
func sameEnv(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
