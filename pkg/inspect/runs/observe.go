package runs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	// pollInterval is the minimum interval between two polls: as often as people can read. A poll takes
	// at most a tenth of the time.
	pollInterval = time.Second
	// pollTimeout is the timeout of one poll of the shared file system.
	pollTimeout = 30 * time.Second
	// maxFullReadNodes is the number of nodes from which on only the head's timeline is read.
	maxFullReadNodes = 256
)

var errPollTimeout = errors.New("timed out")

func withPollTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, pollTimeout, errPollTimeout)
}

// Observer reads the status of one run repeatedly. It is not safe for concurrent use.
type Observer struct {
	Path    string // the run directory's
	Verbose bool   // include all nodes

	lastSign     time.Time     // the newest sign of life; a request to stop may hide it
	lastSeen     string        // the variable part of a live run at the last poll
	changedAt    time.Time     // when that changed last, by this machine's clock
	pollDuration time.Duration // the last poll's
}

// ReadStatus reads the status of the run.
func (o *Observer) ReadStatus(ctx context.Context) (status timeline.Status, err error) {
	ctx, cancel := withPollTimeout(ctx)
	defer cancel()
	began := time.Now()
	run, err := timeline.Read(ctx, o.Path, timeline.DepthQuick)
	if err == nil && run.Size() <= maxFullReadNodes {
		run, err = timeline.Read(ctx, o.Path, timeline.DepthFull)
	}
	if err != nil {
		return status, err
	}
	run.Attempts = timeline.ReadAttempts(ctx, run, 1)
	seen := timeline.Observation{Now: time.Now(), Verbose: o.Verbose}
	if seen.LastSign, err = signal.LastChangeTime(ctx, o.Path); err != nil {
		run.Problems = append(run.Problems, err.Error())
	}
	if seen.LastSign.Before(o.lastSign) {
		seen.LastSign = o.lastSign
	}
	o.lastSign = seen.LastSign
	o.pollDuration = time.Since(began)
	seen.Unchanged = o.unchangedFor(run, seen)
	return timeline.SummarizeRun(run, seen), nil
}

// ReadRoles returns the states of the roles of a run with this plan, or nil if it has none.
func ReadRoles(ctx context.Context, path string, plan *record.Plan) ([]timeline.RoleStatus, error) {
	if plan == nil || len(plan.Roles) == 0 {
		return nil, nil
	}
	status, err := (&Observer{Path: path}).ReadStatus(ctx)
	return status.Roles, err
}

func (o *Observer) unchangedFor(run *timeline.Run, seen timeline.Observation) time.Duration {
	signs := []int64{seen.LastSign.UnixNano(), run.Control.Heartbeat, int64(len(run.Events))}
	for i := range run.Nodes {
		signs = append(signs, run.Nodes[i].Heartbeat, int64(len(run.Nodes[i].States)))
	}
	if now := fmt.Sprint(signs); now != o.lastSeen {
		o.lastSeen, o.changedAt = now, time.Now()
	}
	return time.Since(o.changedAt)
}

// Watch calls show with the status of the run, which is first at first, until isDone reports that it
// is enough, or ctx ends. Errors of later polls may be temporary, and are among the problems of the
// status.
func (o *Observer) Watch(
	ctx context.Context, first timeline.Status, show func(timeline.Status) error, isDone func(timeline.Status) bool,
) error {
	return watch(ctx, first, o.pollDuration, func(last timeline.Status) timeline.Status {
		next, err := o.ReadStatus(ctx)
		if err != nil {
			next = last
			next.Problems = []string{err.Error()}
		}
		return next
	}, show, isDone)
}

// WatchRuns calls show with the runs of a log directory, which are first at first, until ctx ends. job
// is that of [ListRuns]. A poll that fails, which may be temporary, changes nothing; say gets the
// error of the first one in a row.
func WatchRuns(ctx context.Context, first List, job string, show func(List) error, say func(error)) error {
	hasFailed := false
	return watch(ctx, first, 0, func(last List) List {
		poll, cancel := withPollTimeout(ctx)
		defer cancel()
		next, err := ListRuns(poll, last.LogDir, job)
		if err != nil && !hasFailed && ctx.Err() == nil {
			say(err)
		}
		if hasFailed = err != nil; hasFailed {
			return last
		}
		return next
	}, show, func(List) bool { return false })
}

// watch calls show with first and then with what each poll returns, until isDone reports that it is
// enough, or ctx ends. took is how long the first poll has taken.
func watch[T any](
	ctx context.Context, first T, took time.Duration, poll func(last T) T, show func(T) error, isDone func(T) bool,
) error {
	for state := first; ; {
		if err := show(state); err != nil || isDone(state) {
			return err
		}
		if !ctxutil.SleepContext(ctx, max(pollInterval, 10*took)) {
			return context.Cause(ctx)
		}
		began := time.Now()
		next := poll(state)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		state, took = next, time.Since(began)
	}
}
