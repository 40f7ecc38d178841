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
	// meant tells by the name, accept by the record, which run is looked for.
	meant  func(name string) bool
	accept func(ctx context.Context, d *Dir, job Job) (bool, error)
	// refused are names of other runs, which need not be read again.
	refused map[string]bool
	met     bool // the log directory was seen, and is safe
	looks   int
	failed  error // of the newest look
}

// NewFinder returns a finder of the run directory that the head of the same
// launch makes.
func NewFinder(p Place) *Finder {
	f := newFinder(p)
	f.meant = func(name string) bool { return name == p.Run || strings.HasPrefix(name, p.Run+"+") }
	f.accept = func(_ context.Context, _ *Dir, job Job) (bool, error) { return job.Key == p.Key, nil }
	return f
}

// NewStepFinder returns a finder of a run of another step of the same job that
// waits for sandboxes and is not over. place's Run, Key and Size don't count.
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
	// findLook is by how much each node of the job lengthens the pause between
	// the first two looks.
	findLook = 50 * time.Microsecond
	// headCalls is how many times as long as a worker's look the head needs until
	// the directory is there: it makes 16 calls, and a look is 6. An earlier look
	// is in vain.
	headCalls = 3
	// slowHead bounds that estimate, which comes from one look that may have been
	// slow because all looked at once.
	slowHead = 250 * time.Millisecond
)

func newFinder(p Place) *Finder {
	pace := WorkerPace(p.Size)
	pace.Fast = max(fast, time.Duration(p.Size)*findLook)
	p.Access = p.ready()
	return &Finder{place: p, pace: pace, begun: time.Now(), refused: make(map[string]bool)}
}

// Find looks until it sees the run directory, reads the job and returns both.
// A *DirError says that the log directory can't be used on this node; otherwise
// it waits as long as ctx does, and the error wraps ctx's cause and tells of a
// look that failed.
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
			waited = 0 // what fails in passing is mostly well a moment later
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

// Waited tells whether the run directory was not there at the first look.
func (f *Finder) Waited() bool { return f.looks > 1 }

// FileSystem returns what the log directory lies on, as this node sees it; its
// zero value where it can't be told before ctx ends.
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

// read opens a run directory. Its error is errOther where it is not the one that
// is looked for.
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

// Ended tells whether the run has ended or is about to: its end is published.
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

// RankOf returns the rank whose node has joined the run from a host, once there is
// one. guess is looked at first. It is for a daemon that the launcher has told the
// ranks of another step. The error is that of a wait which ctx has ended.
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
				return false // the next look shows it again
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
