package signal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Finder looks for a run directory that a head has made or will make.
type Finder struct {
	location  Location
	pace      Pace
	startedAt time.Time
	// matchesName selects candidates by name, and acceptsJob by the job record.
	matchesName func(name string) bool
	acceptsJob  func(ctx context.Context, d *Dir, job record.Job) (bool, error)
	// otherRuns are names of other runs, which are not read again.
	otherRuns map[string]bool
	hasListed bool  // the log directory was seen, and is safe
	lastErr   error // error of the newest poll
}

// NewFinder returns a finder of the run directory of the same launch's head.
func NewFinder(p Location) *Finder {
	f := newFinder(p)
	f.matchesName = func(name string) bool { return name == p.Run || strings.HasPrefix(name, p.Run+"+") }
	f.acceptsJob = func(_ context.Context, _ *Dir, job record.Job) (bool, error) { return job.Key == p.Key, nil }
	return f
}

// NewStepFinder returns a finder of a run of another step of the same job that waits for the daemons
// of this step and is not over. A run of the same launch, whose key is that of p, counts also if it
// is over: no other one follows. matches selects runs by name; p's Run and Size are ignored.
func NewStepFinder(p Location, matches func(name string) bool, step string) *Finder {
	p.Run = ""
	f := newFinder(p)
	f.matchesName = matches
	f.acceptsJob = func(ctx context.Context, d *Dir, job record.Job) (bool, error) {
		if !slices.Contains(job.Steps, step) {
			return false, nil
		}
		over, err := d.HasEnded(ctx)
		return !over || job.Key == p.Key, err
	}
	return f
}

const (
	// firstPausePerNode is the time by which each node of the job extends the pause between the first
	// two polls.
	firstPausePerNode = 50 * time.Microsecond
	// headBuildFactor is how many times longer the head needs to make the directory than a worker
	// needs for a poll: 9 calls in series against 4. An earlier second poll would be useless.
	headBuildFactor = 2
	// maxHeadBuildTime is the maximum estimate of the time that the head needs. The estimate is based
	// on one poll, which may have been slow because all nodes polled at once.
	maxHeadBuildTime = 250 * time.Millisecond
)

func newFinder(p Location) *Finder {
	pace := WorkerPace(p.Size)
	pace.MinPause = max(minPause, time.Duration(p.Size)*firstPausePerNode)
	p.Access = p.withDefaults()
	return &Finder{location: p, pace: pace, startedAt: time.Now(), otherRuns: make(map[string]bool)}
}

// AwaitRun polls until it sees the run directory, reads the job record and returns both. A
// *DirError reports that the log directory cannot be used on this node. Otherwise it waits until
// ctx ends; the error then wraps ctx's cause and reports a failed poll.
func (f *Finder) AwaitRun(ctx context.Context) (*Dir, record.Job, error) {
	for again := false; ; {
		begin := time.Now()
		d, job, err := f.pollLogDir(ctx)
		if err == nil {
			return d, job, nil
		}
		if !errors.Is(err, errAbsent) {
			return nil, record.Job{}, err
		}
		waited := time.Since(f.startedAt)
		if again = f.lastErr != nil && !again; again {
			waited = 0 // temporary errors usually disappear quickly
		}
		head := min(headBuildFactor*time.Since(begin), maxHeadBuildTime)
		if !ctxutil.SleepContext(ctx, f.pace.nextPause(waited, head, f.location.Jitter())) {
			return nil, record.Job{}, f.waitError(ctx)
		}
	}
}

func (f *Finder) waitError(ctx context.Context) error {
	cause := context.Cause(ctx)
	if f.lastErr == nil {
		return cause
	}
	return fmt.Errorf("%w (last error of %s: %v)", cause, f.location.LogDir, bareErrno(f.lastErr))
}

// FileSystem returns the file system of the log directory, as this node sees it. It returns the
// zero value if that is unknown when ctx ends.
func (f *Finder) FileSystem(ctx context.Context) files.FileSystem {
	kind, err := guardedCall(ctx, f.location.Access, "inspect", f.location.LogDir, f.location.FS.FileSystemOf)
	if err != nil || !f.hasListed {
		return files.FileSystem{}
	}
	return kind
}

func (f *Finder) pollLogDir(ctx context.Context) (*Dir, record.Job, error) {
	names, err := f.location.listLogDir(ctx, f.hasListed)
	f.lastErr = err
	if isTransient(err) {
		f.location.Meter.countRetry()
		return nil, record.Job{}, errAbsent
	}
	if err != nil {
		return nil, record.Job{}, err
	}
	f.hasListed = true
	for _, name := range names {
		if f.otherRuns[name] || !f.matchesName(name) {
			continue
		}
		d, job, err := f.location.openRun(ctx, name)
		if err == nil {
			var wanted bool
			if wanted, err = f.acceptsJob(ctx, d, job); err == nil && !wanted {
				err = errOtherAttempt
			}
		}
		f.otherRuns[name] = err == errOtherAttempt
		if err != errOtherAttempt && !errors.Is(err, errAbsent) {
			return d, job, err
		}
	}
	return nil, record.Job{}, errAbsent
}

// HasEnded reports whether the end of the run is published: the run has ended or is about to end.
func (d *Dir) HasEnded(ctx context.Context) (bool, error) {
	names, err := d.ListNames(ctx, ControlDir)
	if isTransient(err) {
		return false, errAbsent
	}
	if err != nil {
		return false, err
	}
	l := newListing(names, d.size, 1, time.Now())
	return l.HasName(NameOrderlyEnd) || l.HasName(NameHeadFinished) || len(l.NodesWithAbort()) > 0, nil
}

// AwaitNodeIndex waits until a node has joined the run from a host, and returns the node's index.
// It reads the record of the node guess first. It is for a daemon that only knows the node indices
// of another step. If ctx ends, it returns an error like that of [Watch.WaitListing].
func (d *Dir) AwaitNodeIndex(ctx context.Context, host string, guess int) (int, error) {
	found, read := -1, make(map[int]bool)
	err := d.AwaitListing(ctx, NodesDir, func(l Listing) bool {
		nodes := l.NodesIn(record.StateJoined)
		if at, ok := slices.BinarySearch(nodes, guess); ok {
			nodes[0], nodes[at] = nodes[at], nodes[0]
		}
		for _, node := range nodes {
			if read[node] {
				continue
			}
			var joined record.Joined
			if d.ReadRecord(ctx, NodesDir, d.NodeName(node, record.StateJoined), &joined) != nil {
				return false // the next poll shows it again
			}
			if read[node] = true; joined.Host == host {
				found = node
				return true
			}
		}
		return false
	})
	return found, err
}
