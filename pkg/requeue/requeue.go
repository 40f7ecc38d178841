// Package requeue requests from the launcher that it start a failed job again.
package requeue

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Time is the timeout of each request to the launcher.
const Time = 10 * time.Second

// Order is the decision about a requeue that was made when the job failed, with the means to
// execute it.
type Order struct {
	signal.Requeue
	BadNodes []string        // hosts to exclude
	By       roles.Requeuer  // nil if the job is not requeued
	Told     func() bool     // reports whether the job was asked to end meanwhile
	Hurry    context.Context // ends when no time is left
	Log      *zap.Logger     // logs the result
}

// Carry executes the decision and logs the result. It must be the last thing that the daemon does,
// because the launcher may end the rest of the job as soon as it receives the request.
func (o Order) Carry() {
	switch {
	case o.Wanted && o.Told():
		o.Log.Warn("the job is not started anew: the job has been told to end meanwhile")
		return
	case !o.Wanted:
		o.Log.Warn("the job is not started anew: " + o.Why)
		return
	}
	if err := o.ask(o.By.Requeue); err != nil {
		o.Log.Error("the job is not started anew, though it would deserve it", zap.Error(err), zap.String("why", o.Why))
		return
	}
	o.Log.Warn(o.Why)
	if len(o.BadNodes) == 0 {
		return
	}
	err := o.ask(func(ctx context.Context) error { return o.By.Exclude(ctx, o.BadNodes) })
	if err != nil {
		o.Log.Warn("the job may be started on a bad node again", zap.Strings("bad nodes", o.BadNodes), zap.Error(err))
	}
}

// ask sends a request to the launcher, with a timeout.
func (o Order) ask(request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(o.Hurry, Time, health.ErrDeadline)
	defer cancel()
	return request(ctx)
}
