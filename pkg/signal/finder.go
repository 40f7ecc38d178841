package signal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Finder looks for a run directory that a head has made or will make.
type Finder struct {
	place Place
	pace  Pace
	begun time.Time
	// The function meant selects candidates by name, and accept selects by the job record.
	meant  func(name string) bool
	accept func(ctx context.Context, d *Dir, job Job) (bool, error)
	// refused are names of other runs, which are not read again.
	refused map[string]bool
	met     bool // the log directory was seen, and is safe
	looks   int
	failed  error // error of the newest poll
}

// NewFinder returns a finder of the run directory of the same launch's head.
func NewFinder(p Place) *Finder {
	f := newFinder(p)
	f.meant = func(name string) bool { return name == p.Run || strings.HasPrefix(name, p.Run+"+") }
	f.accept = func(_ context.Context, _ *Dir, job Job) (bool, error) { return job.Key == p.Key, nil }
	return f
}

// NewStepFinder returns a finder of a run of another step of the same job that waits for sandboxes
// and is not over. place's Run, Key and Size are ignored.
func NewStepFinder(p Place, job string, restart int) *Finder {
	p.Run = ""
	f := newFinder(p)
	wanted := ""
	if restart > 0 {
		wanted = "r" + strconv.Itoa(restart)
	}
	f.meant = func(name string) bool {
		plain, _, _ := strings.Cut(name, "+")
		step, ok := strings.CutPrefix(plain, job+".")
		_, requeued, _ := strings.Cut(step, "-")
		return ok && requeued == wanted
	}
	f.accept = func(ctx context.Context, d *Dir, job Job) (bool, error) {
		over, err := d.Ended(ctx)
		return job.SandboxStep && !over, err
	}
	return f
}

const (
	// findLook is the time by which each node of the job extends the pause between the first two
	// polls.
	findLook = 50 * time.Microsecond
	// headCalls is how many times longer the head needs to make the directory than a worker needs for
	// a poll: 16 calls against 6. An earlier second poll would be useless.
	headCalls = 3
	// slowHead is the maximum estimate of the time that the head needs. The estimate is based on one
	// poll, which may have been slow because all nodes polled at once.
	slowHead = 250 * time.Millisecond
)

func newFinder(p Place) *Finder {
	pace := WorkerPace(p.Size)
	pace.Fast = max(fast, time.Duration(p.Size)*findLook)
	p.Access = p.ready()
	return &Finder{place: p, pace: pace, begun: time.Now(), refused: make(map[string]bool)}
}

// Find polls until it sees the run directory, reads the job record and returns both. A *DirError
// reports that the log directory cannot be used on this node. Otherwise it waits until ctx ends;
// the error then wraps ctx's cause and reports a failed poll.
func (f *Finder) Find(ctx context.Context) (*Dir, Job, error) {
	for again := false; ; {
		begin := time.Now()
		d, job, err := f.look(ctx)
		if err == nil {
			return d, job, nil
		}
		if !errors.Is(err, errAbsent) {
			return nil, Job{}, err
		}
		waited := time.Since(f.begun)
		if again = f.failed != nil && !again; again {
			waited = 0 // temporary errors usually disappear quickly
		}
		head := min(headCalls*time.Since(begin), slowHead)
		if !pause.For(ctx, f.pace.next(waited, head, f.place.Jitter())) {
			return nil, Job{}, f.gaveUp(ctx)
		}
	}
}

func (f *Finder) gaveUp(ctx context.Context) error {
	cause := context.Cause(ctx)
	if f.failed == nil {
		return cause
	}
	return fmt.Errorf("%w (the last look at %s: %v)", cause, f.place.LogDir, errno(f.failed))
}

// Waited reports whether the run directory was missing at the first poll.
func (f *Finder) Waited() bool { return f.looks > 1 }

// FileSystem returns the file system of the log directory, as this node sees it. It returns the
// zero value if that is unknown when ctx ends.
func (f *Finder) FileSystem(ctx context.Context) FileSystem {
	kind, err := f.place.fileSystem(ctx)
	if err != nil || !f.met {
		return FileSystem{}
	}
	return kind
}

func (f *Finder) look(ctx context.Context) (*Dir, Job, error) {
	f.looks++
	names, err := f.place.look(ctx, f.met)
	f.failed = err
	if passing(err) {
		f.place.Meter.retry()
		return nil, Job{}, errAbsent
	}
	if err != nil {
		return nil, Job{}, err
	}
	f.met = true
	for _, name := range names {
		if f.refused[name] || !f.meant(name) {
			continue
		}
		d, job, err := f.read(ctx, name)
		f.refused[name] = err == errOther
		if err != errOther && !errors.Is(err, errAbsent) {
			return d, job, err
		}
	}
	return nil, Job{}, errAbsent
}

// read opens a run directory. It returns errOther if this is not the run that the finder looks for.
func (f *Finder) read(ctx context.Context, name string) (*Dir, Job, error) {
	d, job, err := f.place.open(ctx, name)
	if err != nil {
		return d, job, err
	}
	wanted, err := f.accept(ctx, d, job)
	if err == nil && !wanted {
		err = errOther
	}
	return d, job, err
}

// Ended reports whether the end of the run is published: the run has ended or is about to end.
func (d *Dir) Ended(ctx context.Context) (bool, error) {
	names, err := d.Names(ctx, Control)
	if passing(err) {
		return false, errAbsent
	}
	if err != nil {
		return false, err
	}
	l := newListing(names, d.size, 1, time.Now())
	return l.Has(NameDrain) || l.Has(NameOver) || len(l.Aborts()) > 0, nil
}

// RankOf waits until a node has joined the run from a host, and returns the node's index. It reads
// the record of the node guess first. It is for a daemon that only knows the node indices of
// another step. If ctx ends, it returns an error like that of Watch.Wait.
func (d *Dir) RankOf(ctx context.Context, host string, guess int) (int, error) {
	found, read := -1, make(map[int]bool)
	err := d.Await(ctx, Nodes, func(l Listing) bool {
		ranks := l.Ranks(Joined)
		if at, ok := slices.BinarySearch(ranks, guess); ok {
			ranks[0], ranks[at] = ranks[at], ranks[0]
		}
		for _, rank := range ranks {
			if read[rank] {
				continue
			}
			var joined JoinedRecord
			if d.Read(ctx, Nodes, d.NodeName(rank, Joined), &joined) != nil {
				return false // the next poll shows it again
			}
			if read[rank] = true; joined.Host == host {
				found = rank
				return true
			}
		}
		return false
	})
	return found, err
}
