// Package requeue requests from the launcher that it start a failed job again.
package requeue

import (
	"context"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Decision is the decision about a requeue that was made when the job failed, with the means to
// execute it.
type Decision struct {
	record.RequeueDecision
	BadNodes     []string        // hosts to exclude
	Requeuer     roles.Requeuer  // nil if the job is not requeued
	EndRequested func() bool     // reports whether the job was asked to end meanwhile
	GraceContext context.Context // ends when no time is left
	Log          *zap.Logger     // logs the result
}

// RequestRequeue executes the decision and logs the result. It must be the last thing that the
// daemon does, because the launcher may end the rest of the job as soon as it receives the request.
func (o Decision) RequestRequeue() {
	switch {
	case o.Wanted && o.EndRequested():
		o.Log.Warn("the job is not requeued: it was told to end in the meantime")
		return
	case !o.Wanted:
		o.Log.Warn("the job is not requeued: " + o.Reason)
		return
	}
	if err := o.sendRequest(o.Requeuer.RequeueJob); err != nil {
		o.Log.Error("the job cannot be requeued, although its failure allows it", zap.Error(err), zap.String("why", o.Reason))
		return
	}
	o.Log.Warn(o.Reason)
	if len(o.BadNodes) == 0 {
		return
	}
	err := o.sendRequest(func(ctx context.Context) error { return o.Requeuer.ExcludeHosts(ctx, o.BadNodes) })
	if err != nil {
		o.Log.Warn("the job may be started on a bad node again", zap.Strings("bad nodes", o.BadNodes), zap.Error(err))
	}
}

// sendRequest sends a request to the launcher, with a timeout.
func (o Decision) sendRequest(request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(o.GraceContext, roles.RequeueTimeout, health.ErrDeadline)
	defer cancel()
	return request(ctx)
}
