package framework

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
)

// Cluster is a framework's cluster, as the node of its head knows it.
type Cluster struct {
	Framework Framework
	Head      Node
	Endpoint  Endpoint
}

// HeadService describes the service of the head, and sets the endpoint. The error is a
// *health.Failure.
func (c *Cluster) HeadService() (described *Service, err error) {
	if described, c.Endpoint, err = c.Framework.HeadService(c.Head); err != nil {
		return nil, health.NewFailure(health.ServiceDied, "%v", err)
	}
	return described, nil
}

// WorkerService describes the service of a worker. The error is a *health.Failure.
func (c Cluster) WorkerService(node Node) (*Service, error) {
	described, err := c.Framework.WorkerService(node, c.Endpoint)
	if err != nil {
		return nil, health.NewFailure(health.ServiceDied, "%v", err)
	}
	return described, nil
}

// AwaitMembers waits until the framework's own list has contained all members for the settle time. A
// framework without such a list is not queried. The error is a *health.Failure if the time limit has
// passed.
func (c Cluster) AwaitMembers(ctx context.Context, members []Member, settle, within time.Duration) error {
	lister, ok := c.Framework.(MemberLister)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, health.ErrDeadline)
	defer cancel()
	err := AwaitStable(ctx, settle, func(ctx context.Context) error { return lister.CheckMembers(ctx, c.Head, c.Endpoint, members) })
	if errors.Is(err, health.ErrDeadline) {
		return health.NewFailure(health.ServiceDied, "%s does not report all %d nodes after %s: %v", c.Framework.Name(), len(members), within, err)
	}
	return err
}

// AwaitStable polls until look has returned nil at every poll for the settle time, and then returns
// nil. The settle time detects a node that is listed and restarts a moment later. If ctx ends
// before, the error wraps its cause and includes the last result.
func AwaitStable(ctx context.Context, settle time.Duration, look func(ctx context.Context) error) error {
	const pace, bound = 250 * time.Millisecond, 5 * time.Second
	var since time.Time // of the first nil in a row; zero: the last poll failed
	var last error
	for {
		begin := time.Now()
		bounded, cancel := context.WithTimeout(ctx, bound)
		err := look(bounded)
		cancel()
		switch {
		case err != nil:
			last, since = err, time.Time{}
		case since.IsZero():
			since = begin
		}
		if err == nil && time.Since(since) >= settle {
			return nil
		}
		if !ctxutil.SleepContext(ctx, pace) {
			return fmt.Errorf("%w (last seen: %v)", context.Cause(ctx), last)
		}
	}
}
