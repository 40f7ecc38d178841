// Package requeue has a job that has failed started anew, where that was decided.
package requeue

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Time bounds each request to the launcher.
const Time = 10 * time.Second

// Order is what was decided when the job failed.
type Order struct {
	signal.Requeue
	BadNodes []string        // to stay away from
	By       roles.Requeuer  // not nil where the job is to be started anew
	Told     func() bool     // somebody has told the job to end meanwhile
	Hurry    context.Context // over when there is no time left
	Log      *zap.Logger     // what it says is for people
}

// Carry carries the order out, and tells how that went. The launcher ends what is left of
// the job when it is asked: nothing must be left to do by then.
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

// ask asks the launcher for something, for no longer than it may take.
func (o Order) ask(request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(o.Hurry, Time, health.ErrDeadline)
	defer cancel()
	return request(ctx)
}
