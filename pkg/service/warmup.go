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

// prestartedProcess is a process of a service that has been started in advance and waits for its
// order on standard input.
type prestartedProcess struct {
	child     process.Handle
	env       []string
	orderPipe *os.File
}

// prestartTimeout bounds how long a node waits for a start in advance.
const prestartTimeout = 5 * time.Second

// Prestart starts a service's process in advance, if the service supports that.
// [Children.StartProgram] then continues with it. Errors are ignored here, because
// [Children.StartProgram] tries again and reports them.
func (c *Children) Prestart(ctx context.Context, service *framework.Service) {
	if service == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, prestartTimeout, health.ErrDeadline)
	defer cancel()
	w, err := c.startWaiting(ctx, service)
	if err != nil || w == nil {
		c.cfg.Log.Debug("cannot start a service in advance", zap.String("service", service.Name), zap.Error(err))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prestarted = w
}

func (c *Children) startWaiting(ctx context.Context, service *framework.Service) (*prestartedProcess, error) {
	if service.WarmCommand == nil {
		return nil, nil
	}
	argv, err := CallBounded(ctx, func() ([]string, error) { return service.WarmCommand(), nil })
	if err != nil || argv == nil {
		return nil, err
	}
	input, order, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	child, err := c.Start(ctx, process.Spec{Name: service.Name, Argv: argv, Env: service.Env, Stdin: input})
	_ = input.Close()
	if err != nil {
		_ = order.Close()
		return nil, err
	}
	return &prestartedProcess{child: child, env: service.Env, orderPipe: order}, nil
}

// startProcess starts the service's process, or continues with the one that was started in advance.
func (c *Children) startProcess(ctx context.Context, service *framework.Service) (process.Handle, error) {
	c.mu.Lock()
	w := c.prestarted
	if w != nil && w.child.Name() == service.Name {
		c.prestarted = nil
	} else {
		w = nil
	}
	c.mu.Unlock()
	// Use the process only if it still runs with the right environment.
	sorted := func(env []string) []string { return slices.Sorted(slices.Values(env)) }
	if w != nil && (HasEnded(w.child) || !slices.Equal(sorted(w.env), sorted(service.Env))) {
		_ = w.orderPipe.Close()
		w.child.Stop(c.contexts.Grace, 0, syscall.SIGKILL)
		c.RemoveChild(w.child)
		w = nil
	}
	if w == nil {
		var err error
		if w, err = c.startWaiting(ctx, service); err != nil {
			return nil, err
		}
	}
	if w == nil {
		return c.Start(ctx, process.Spec{Name: service.Name, Argv: service.Argv, Env: service.Env})
	}
	defer func() { _ = w.orderPipe.Close() }()
	_, err := w.orderPipe.Write(append(slices.Clip(service.WarmInput), '\n'))
	if err != nil && !HasEnded(w.child) { // otherwise its exit explains more
		return nil, err
	}
	return w.child, nil
}
