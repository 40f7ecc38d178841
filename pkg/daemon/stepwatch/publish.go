package stepwatch

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	// publishInterval is the maximum interval at which progress is published, if it has changed. At
	// the beginning, the interval is shorter.
	publishInterval    = 5 * time.Second
	minPublishInterval = 250 * time.Millisecond
	// publishIntervalPerNode extends the interval for many nodes: all together publish at most a
	// hundred times per second.
	publishIntervalPerNode = 10 * time.Millisecond
	flushTimeout           = time.Second // how long Flush waits for the file system
)

// publishPause returns the pause until the next publication, in a job of size nodes, that long after
// the first one.
func publishPause(size int, elapsed time.Duration) time.Duration {
	longest := max(publishInterval, time.Duration(size)*publishIntervalPerNode)
	return min(max(minPublishInterval, elapsed/4), longest)
}

// Run publishes this node's progress, and on the head that of the job, until ctx ends.
func (m *Monitor) Run(ctx context.Context, store Store) {
	if m.pattern == nil && !m.hasRanks {
		return
	}
	m.store.Store(&store)
	publish := m.publishOwn
	if store.Nodes != nil {
		publish = m.publishJob
		_, err := store.Nodes.FollowListings(ctx, func(l signal.Listing) bool {
			m.addListing(l)
			return m.hasSteps()
		})
		if err != nil {
			return
		}
	} else if !ctxutil.AwaitDone(ctx, m.first) {
		return
	}
	for began := time.Now(); ; {
		names := publish(ctx, store)
		if !ctxutil.SleepContext(ctx, publishPause(m.size*max(1, names), time.Since(began))) {
			return
		}
	}
}

// Flush publishes this node's progress now, because its ranks have ended.
func (m *Monitor) Flush(ctx context.Context) {
	if store := m.store.Load(); store != nil && store.Nodes == nil && m.hasSteps() {
		ctx, cancel := context.WithTimeoutCause(ctx, flushTimeout, health.ErrDeadline)
		defer cancel()
		m.publishOwn(ctx, *store)
	}
}

func (m *Monitor) hasSteps() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.own.hasAny() || len(m.job.others) > 0
}

// publishOwn publishes the step of this node's slowest rank, or that of each instance of a role. It
// returns the number of names.
func (m *Monitor) publishOwn(ctx context.Context, store Store) int {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	m.mu.Lock()
	slowest := slowestByInstance(m.own.list(m.nodeIndex))
	m.mu.Unlock()
	for _, s := range slowest {
		m.publishName(ctx, store, s.Instance, signal.StepName(s, m.size))
	}
	return len(slowest)
}

// publishName publishes the name of an instance's step in place of the one before. A change that has
// reported an error may have happened nevertheless, or happen later: it is repeated first, which does
// nothing if it has. publishing must be held.
func (m *Monitor) publishName(ctx context.Context, store Store, instance int, name string) {
	known := m.published[instance]
	for _, next := range []string{known.uncertain, name} {
		if next == "" || next == known.name {
			continue
		}
		err := m.call(ctx, store, func(ctx context.Context) error {
			if known.name == "" {
				return store.Dir.WriteMark(ctx, signal.NodesDir, next)
			}
			return store.Dir.RenameMark(ctx, signal.NodesDir, known.name, next)
		})
		if err != nil {
			m.published[instance] = publishedName{known.name, next}
			return
		}
		known = publishedName{name: next}
		m.published[instance] = known
	}
}

// publishJob publishes the progress of the job, as one name.
func (m *Monitor) publishJob(ctx context.Context, store Store) int {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	p := m.Summary()
	if p == nil {
		return 1
	}
	now := publishedState{reports: p.Reports}
	if p.Slowest != nil {
		now.slowest = *p.Slowest
	}
	if now == m.lastState {
		return 1
	}
	if store.OnStep != nil {
		store.OnStep(p.Step)
	}
	number := m.number
	m.number++
	err := m.call(ctx, store, func(ctx context.Context) error {
		err := store.Dir.PublishRecord(ctx, signal.ControlDir, signal.SeriesProgress.Name(number),
			&record.ProgressMark{Progress: *p}, false)
		if err == nil && number > 0 {
			err = store.Dir.RemoveNames(ctx, signal.ControlDir, signal.SeriesProgress.Name(number-1))
		}
		return err
	})
	if err == nil {
		m.lastState = now
	}
	return 1
}

// addListing takes over the steps of other nodes from a listing of [signal.NodesDir].
func (m *Monitor) addListing(l signal.Listing) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.job.addListing(l, m.nodeIndex)
	m.job.addToAccount(time.Since(m.started), m.own.list(m.nodeIndex))
}

// call makes a bounded call to the file system.
func (m *Monitor) call(ctx context.Context, store Store, request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, store.WriteTimeout, health.ErrDeadline)
	defer cancel()
	err := request(ctx)
	if err != nil && ctx.Err() == nil {
		store.OnWriteError(err)
	}
	return err
}
