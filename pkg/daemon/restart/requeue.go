package restart

import (
	"context"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// CarryOut carries out the decision of [Decide] on the node that has written the result: it
// announces the next attempt, or requests from the launcher that it start the failed job again.
// endRequested reports whether the job was asked to end meanwhile, and ctx ends when no time is
// left. It must be the last action of the daemon, because the launcher may end the rest of the job
// as soon as it receives the request.
func CarryOut(
	ctx context.Context, end *lifecycle.Outcome, requeuer launcher.Requeuer, endRequested func() bool,
	warn func(message string, fields ...zap.Field),
) {
	switch {
	case end.NextAttempt.Number > 0:
		warn(end.NextAttempt.Reason)
		return
	case end.NextAttempt.Reason != "":
		warn("there is no further attempt: " + end.NextAttempt.Reason)
	}
	switch again := end.Requeue; {
	case again == nil:
		return
	case !again.Wanted:
		warn("the job is not requeued: " + again.Reason)
		return
	case endRequested():
		warn("the job is not requeued: it was told to end in the meantime")
		return
	}
	send := func(request func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeoutCause(ctx, launcher.RequeueTimeout, health.ErrDeadline)
		defer cancel()
		return request(ctx)
	}
	if err := send(requeuer.RequeueJob); err != nil {
		warn("the job cannot be requeued, although its failure allows it",
			zap.Error(err), zap.String("why", end.Requeue.Reason))
		return
	}
	warn(end.Requeue.Reason)
	if len(end.BadNodes) == 0 {
		return
	}
	err := send(func(ctx context.Context) error { return requeuer.ExcludeHosts(ctx, end.BadNodes) })
	if err != nil {
		warn("the job may be started on a bad node again",
			zap.Strings("bad nodes", end.BadNodes), zap.Error(err))
	}
}
