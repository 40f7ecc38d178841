// Package stepwatch follows the progress of a job: each daemon finds steps in the output of its
// programs, and publishes how far its slowest rank has got; the head derives the progress of the
// job.
package stepwatch

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Config configures the monitor of a daemon.
type Config struct {
	Pattern         *progress.Pattern // nil if no lines are watched
	HasRanks        bool              // ranks can report steps themselves
	NodeIndex, Size int
	Attempt         int
	Before          *record.Progress // progress up to the previous attempt; nil if it is unknown
	// JobStart is the start of the job on this daemon's clock, which includes earlier attempts. Earlier
	// is the duration of the job before that: before a requeue, for example.
	JobStart time.Time
	Earlier  time.Duration
	// Wanted makes the head report the progress even if there are no steps.
	Wanted bool
}

// Store provides access to the run directory.
type Store struct {
	Dir *signal.Dir
	// Nodes is the head's watch of [signal.NodesDir]. It is nil on other nodes.
	Nodes        *signal.Watch
	WriteTimeout time.Duration
	OnWriteError func(err error)
}

// driverRank is the rank of a driver that is not a world of ranks.
const driverRank = -1

// Monitor follows the progress on one node and, on the head, that of the job. It is safe for
// concurrent use. Without any step, it costs nothing.
type Monitor struct {
	cfg     Config
	started time.Time
	first   chan struct{} // closed at the first step

	mu      sync.Mutex
	own     map[int]*progress.Series // steps of this node's ranks
	account *progress.Account        // of the job; used only on the head
	others  map[int]signal.NodeStep  // the newest known steps of other nodes
	changes int64                    // number of changes of this node's steps

	store      atomic.Pointer[Store] // nil before [Monitor.Run]
	publishing sync.Mutex            // guards the following fields
	published  string                // the name of this node's step; empty before the first
	number     int                   // of the next record of the job's progress
	lastState  publishedState        // of the last one
}

// publishedState is what must change before the progress of the job is published again.
type publishedState struct {
	reports int64
	slowest record.SlowestRank
}

// FromConfig returns the monitor of a daemon with this configuration, which must be valid.
func FromConfig(cfg *deps.Config) *Monitor {
	c := Config{
		NodeIndex: cfg.Identity.NodeIndex, Size: cfg.Identity.Size, Attempt: cfg.Identity.Attempt, Before: cfg.Previous.History.Progress,
		HasRanks: cfg.World.IsRequested(), JobStart: cfg.FirstStart, Earlier: cfg.Previous.EarlierDuration, Wanted: cfg.After.Rules.NeedsProgress,
	}
	if cfg.Progress != "" {
		c.Pattern, _ = progress.ParsePattern(cfg.Progress) // the flag has been validated
	}
	return New(c)
}

// New returns the monitor of a daemon.
func New(cfg Config) *Monitor {
	m := &Monitor{cfg: cfg, started: time.Now(), first: make(chan struct{}), own: make(map[int]*progress.Series)}
	if m.cfg.JobStart.IsZero() {
		m.cfg.JobStart = m.started
	}
	var before record.Progress
	if cfg.Before != nil {
		before = *cfg.Before
	}
	m.account = progress.NewAccount(before, cfg.Attempt)
	return m
}

// WatchLines returns a function that finds steps in the lines of a child, or nil if none are
// watched.
func (m *Monitor) WatchLines(child string) func(lines []byte) {
	if m.cfg.Pattern == nil {
		return nil
	}
	rank := rankOf(child)
	return func(lines []byte) {
		if step, found := m.cfg.Pattern.LastStep(lines); found {
			m.ReportStep(rank, step)
		}
	}
}

// rankOf returns the rank of a child, or driverRank if it is not a rank.
func rankOf(child string) int {
	if digits, is := strings.CutPrefix(child, "rank "); is {
		rank, _ := strconv.Atoi(digits) // service.RankName has formatted the number
		return rank
	}
	return driverRank
}

// LastStep returns the newest step of the driver or of a rank of this node. known is false if there
// is none.
func (m *Monitor) LastStep(child string) (step float64, known bool) {
	if !service.IsUserProgram(child) {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if series := m.own[rankOf(child)]; series != nil {
		return series.Last()
	}
	return 0, false
}

// ReportStep records a step of a rank of this node, or of the driver if rank is -1.
func (m *Monitor) ReportStep(rank int, step float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := time.Since(m.started)
	series, known := m.own[rank]
	if !known {
		if len(m.own) == 0 {
			close(m.first)
		}
		series = new(progress.Series)
		m.own[rank] = series
	}
	if last, any := series.Last(); !any || step != last {
		m.changes++
	}
	series.Add(at, step)
	m.addToAccountLocked(at)
}

// CountChanges returns the number of changes of the steps of this node's ranks and driver. A step
// that is lower than the one before counts, too, and one that is reported again does not.
func (m *Monitor) CountChanges() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes
}

// NodesWithSteps returns the nodes of which steps are known, given the newest listing of
// [signal.NodesDir].
func (m *Monitor) NodesWithSteps(l signal.Listing) []int {
	nodes := slices.Collect(maps.Keys(l.NodeSteps()))
	if m.CountChanges() > 0 {
		nodes = append(nodes, m.cfg.NodeIndex)
	}
	return nodes
}

// addToAccountLocked adds the job's step to the account: that of the rank that is furthest. mu must
// be held.
func (m *Monitor) addToAccountLocked(at time.Duration) {
	furthest, any := 0.0, false
	add := func(step float64) { furthest, any = max(furthest, step), true }
	for _, series := range m.own {
		step, _ := series.Last()
		add(step)
	}
	for _, other := range m.others {
		add(other.Step)
	}
	if any {
		m.account.Add(at, furthest)
	}
}

// Summary returns the progress of the job, as the head knows it. It returns nil if there is none to
// report.
func (m *Monitor) Summary() *record.Progress {
	if store := m.store.Load(); store != nil && store.Nodes != nil {
		m.addListing(store.Nodes.LastListing())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.account.Summary(m.cfg.Earlier + time.Since(m.cfg.JobStart))
	if p.Reports == 0 && !m.cfg.Wanted {
		return nil
	}
	p.Slowest = m.slowestLocked()
	return &p
}

// slowestLocked returns the slowest rank: of the slowest ranks of all nodes or, if only this node
// has reported any, of its ranks. mu must be held.
func (m *Monitor) slowestLocked() *record.SlowestRank {
	steps, ranks := make(map[int]float64), make(map[int]int) // by rank, and by node
	if len(m.others) == 0 {
		for rank, series := range m.own {
			steps[rank], _ = series.Last()
		}
		rank, step, median, ok := progress.FindSlowest(steps)
		if !ok {
			return nil
		}
		return &record.SlowestRank{Rank: rank, NodeIndex: m.cfg.NodeIndex, Step: step, Median: median, Count: len(steps)}
	}
	if own, any := m.ownSlowestLocked(); any {
		steps[m.cfg.NodeIndex], ranks[m.cfg.NodeIndex] = own.Step, own.Rank
	}
	for node, other := range m.others {
		steps[node], ranks[node] = other.Step, other.Rank
	}
	node, step, median, ok := progress.FindSlowest(steps)
	if !ok {
		return nil
	}
	return &record.SlowestRank{Rank: ranks[node], NodeIndex: node, Step: step, Median: median, Count: len(steps)}
}

// ownSlowestLocked returns the step of this node's slowest rank. mu must be held.
func (m *Monitor) ownSlowestLocked() (slowest signal.NodeStep, any bool) {
	for rank, series := range m.own {
		step, _ := series.Last()
		if !any || step < slowest.Step || step == slowest.Step && rank < slowest.Rank {
			slowest, any = signal.NodeStep{Rank: rank, Step: step}, true
		}
	}
	return slowest, any
}

const (
	// publishInterval is the maximum interval at which progress is published, if it has changed. At
	// the beginning, the interval is shorter.
	publishInterval    = 5 * time.Second
	minPublishInterval = 250 * time.Millisecond
	// publishIntervalPerNode extends the interval for many nodes: all together publish at most a
	// hundred times per second.
	publishIntervalPerNode = 10 * time.Millisecond
	// flushTimeout is how long Flush waits for the file system.
	flushTimeout = time.Second
)

// publishPause returns the pause until the next publication, in a job of size nodes, that long after
// the first one.
func publishPause(size int, elapsed time.Duration) time.Duration {
	longest := max(publishInterval, time.Duration(size)*publishIntervalPerNode)
	return min(max(minPublishInterval, elapsed/4), longest)
}

// Run publishes this node's progress, and on the head that of the job, until ctx ends.
func (m *Monitor) Run(ctx context.Context, store Store) {
	if m.cfg.Pattern == nil && !m.cfg.HasRanks {
		return
	}
	m.store.Store(&store)
	publish := m.publishOwn
	if store.Nodes != nil {
		publish = m.publishJob
		// The first step of any node begins it.
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
		publish(ctx, store)
		if !ctxutil.SleepContext(ctx, publishPause(m.cfg.Size, time.Since(began))) {
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

// hasSteps reports whether any steps are known.
func (m *Monitor) hasSteps() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.own)+len(m.others) > 0
}

// publishOwn publishes the step of this node's slowest rank.
func (m *Monitor) publishOwn(ctx context.Context, store Store) {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	m.mu.Lock()
	slowest, _ := m.ownSlowestLocked()
	m.mu.Unlock()
	name := signal.StepName(m.cfg.NodeIndex, m.cfg.Size, slowest.Rank, slowest.Step)
	if name == m.published {
		return
	}
	err := m.call(ctx, store, func(ctx context.Context) error {
		if m.published == "" {
			return store.Dir.WriteMark(ctx, signal.NodesDir, name)
		}
		return store.Dir.RenameMark(ctx, signal.NodesDir, m.published, name)
	})
	if err == nil {
		m.published = name
	}
}

// publishJob publishes the progress of the job.
func (m *Monitor) publishJob(ctx context.Context, store Store) {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	p := m.Summary()
	if p == nil {
		return
	}
	now := publishedState{reports: p.Reports}
	if p.Slowest != nil {
		now.slowest = *p.Slowest
	}
	if now == m.lastState {
		return
	}
	number := m.number
	m.number++
	err := m.call(ctx, store, func(ctx context.Context) error {
		err := store.Dir.PublishRecord(ctx, signal.ControlDir, signal.ProgressName(number), &record.ProgressMark{Progress: *p}, false)
		if err == nil && number > 0 {
			err = store.Dir.RemoveNames(ctx, signal.ControlDir, signal.ProgressName(number-1))
		}
		return err
	})
	if err == nil {
		m.lastState = now
	}
}

// addListing takes over the steps of other nodes from a listing of [signal.NodesDir].
func (m *Monitor) addListing(l signal.Listing) {
	steps := l.NodeSteps()
	delete(steps, m.cfg.NodeIndex)
	if len(steps) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.others = steps
	m.addToAccountLocked(time.Since(m.started))
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
