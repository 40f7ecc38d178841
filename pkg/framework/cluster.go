package framework

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
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

// AwaitMembers waits until the framework's own list has contained all members. A
// framework without such a list is not queried. The error is a *health.Failure if the time limit has
// passed.
func (c Cluster) AwaitMembers(ctx context.Context, members []Member, within time.Duration) error {
	lister, ok := c.Framework.(MemberLister)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, health.ErrDeadline)
	defer cancel()
	err := awaitNil(ctx, func(ctx context.Context) error {
		return lister.CheckMembers(ctx, c.Head, c.Endpoint, members)
	})
	if errors.Is(err, health.ErrDeadline) {
		return health.NewFailure(health.ServiceDied, "%s does not report all %d nodes after %s: %v",
			c.Framework.Name(), len(members), within, err)
	}
	return err
}

// awaitNil polls until look returns nil. If ctx ends before, the error wraps its cause and includes the
// last result.
func awaitNil(ctx context.Context, look func(ctx context.Context) error) error {
	const pollInterval, pollTimeout = 250 * time.Millisecond, 5 * time.Second
	for {
		bounded, cancel := context.WithTimeout(ctx, pollTimeout)
		err := look(bounded)
		cancel()
		if err == nil {
			return nil
		}
		if !ctxutil.SleepContext(ctx, pollInterval) {
			return fmt.Errorf("%w (last seen: %v)", context.Cause(ctx), err)
		}
	}
}

// maxListedGaps is the maximum number of members in a [GapsError].
const maxListedGaps = 8

// GapsError returns an error with what is wrong with members, or nil if nothing is.
func GapsError(gaps []string) error {
	if len(gaps) == 0 {
		return nil
	}
	return errors.New(textutil.JoinLimited(gaps, maxListedGaps, "; "))
}

// DescribeShortage describes the resources of which a member has less than wanted. It returns an
// empty string if there are none.
func DescribeShortage(has, want map[string]float64) string {
	var short []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !(has[name] >= want[name]) {
			short = append(short, fmt.Sprintf("%s %g, expected %g", name, has[name], want[name]))
		}
	}
	if len(short) == 0 {
		return ""
	}
	return "has " + strings.Join(short, ", ")
}
