package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Checks are those of the node itself.
type Checks interface {
	Await(ctx context.Context, progress func(check.Report)) check.Report
	// Longest is how long Await may take.
	Longest() time.Duration
}

// Launch is what is to be looked at.
type Launch struct {
	Identity roles.Identity
	// Alone and Mistake say why this node is looked at by itself: nothing has launched several, or has launched them
	// wrongly. Identity is a job of one then.
	Alone, Mistake *roles.LaunchError
	LogDir         string
	Framework      framework.Framework
	Policy         check.Policy
}

// World is what a node looks at the others and at itself by. The zero World is that of any program.
type World struct {
	Access   signal.Access    // its zero value: the file system itself
	Network  lifeline.Network // nil: TCP
	Resolver Resolver         // nil: the system's
	Now      func() time.Time // this node's clock; nil: the system's
	Root     string           // where /proc, /sys and /dev/shm are; empty: /
}

// Config is what the doctor is to look at, and by what.
type Config struct {
	Launch
	Hostname string // as the kernel has it
	TempDir  string
	Address  func() (string, error) // where peers reach this node
	Checks   Checks
	Environ  []string
	Driver   []string      // the job's; none: it is not looked at
	PMIx     string        // as --pmix has it
	Program  string        // version of this bringupd
	Join     time.Duration // until all nodes have met
	World
}

// doctor is one node's part in it.
type doctor struct {
	Config
	began time.Time
}

// The names that a doctor's run has besides those of a job.
const (
	suffix    = "-doctor" // of the run directory: no step and no requeue is called so
	pingName  = "ping"    // in Control: to be answered at once
	pongState = "pong"    // in Nodes: the answer
	factState = "facts"   // in Nodes: a factsRecord
)

type factsRecord struct {
	signal.Header
	Facts Facts `json:"facts"`
}

const (
	// pingTime is for how long the head waits for answers, and a node for the question once it has joined.
	pingTime = 30 * time.Second
	// lateTime is by how much longer a node waits for the head than the head waits for the nodes: no node leaves before
	// the report is there.
	lateTime = 10 * time.Second
	// hearTime is how long inotify's word of a name is waited for once a listing has shown that name.
	hearTime = 500 * time.Millisecond
	// endTime is for how long the head waits for all to know of the end.
	endTime = 15 * time.Second
)

var (
	errJoin = errors.New("the join timeout is over")
	errPing = errors.New("the time for an answer is over")
	errEnd  = errors.New("the time for the end is over")
)

// Run examines a launch together with its other nodes. On the head it calls show with the report. Every node returns
// the exit code of the report.
func Run(ctx context.Context, cfg Config, show func(Report) error) (code int, err error) {
	d := &doctor{Config: cfg, began: time.Now()}
	d.Network = cmp.Or[lifeline.Network](d.Network, lifeline.TCP{})
	d.Resolver = cmp.Or[Resolver](d.Resolver, net.DefaultResolver)
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Identity.Rank == 0 {
		return d.runHead(ctx, show)
	}
	return d.runWorker(ctx)
}

func (d *doctor) place() signal.Place {
	id := d.Identity
	return signal.Place{
		LogDir: d.LogDir, Run: id.RunName() + suffix, Key: id.Key, Rank: id.Rank, Size: id.Size, Host: id.Host, Access: d.Access,
	}
}

// factTime is for how long facts are gathered, at most.
func (d *doctor) factTime() time.Duration { return d.Checks.Longest() + toolTime + 2*lookTime }

// runHead is the head's part.
func (d *doctor) runHead(ctx context.Context, show func(Report) error) (int, error) {
	c := scene{Launch: d.Launch}
	m, err := d.open(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		c.ShareErr, c.Facts = err, []Facts{d.gather(ctx, nil, nil)}
		report := d.report(&c)
		return report.Code, show(report)
	}
	defer m.close()
	err = m.collect(ctx, &c)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		// The others have nothing to tell of: whatever befell us is the share's.
		return 0, m.end(ctx, health.OutcomeOf(health.Share).Code, err)
	}
	report := d.report(&c)
	return report.Code, m.end(ctx, report.Code, show(report))
}

func (d *doctor) report(c *scene) Report {
	c.Took = time.Since(d.began)
	return judge(c)
}

// isThere tells whether a directory is there, by a listing of its parent.
func isThere(dir string) bool {
	entries, err := os.ReadDir(filepath.Dir(dir))
	return err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == filepath.Base(dir) })
}

// member is what every node does, the head too: it joins, answers and tells its facts.
func (d *doctor) member(ctx context.Context, dir *signal.Dir, job signal.Job, kind signal.FileSystem) error {
	heard, deaf := dir.Hear(signal.Control)
	defer deaf()
	began := time.Now()
	joined := &signal.JoinedRecord{Canary: job.Nonce, PID: os.Getpid(), Program: d.Program}
	if err := dir.Publish(ctx, signal.Nodes, dir.NodeName(d.Identity.Rank, signal.Joined), joined, false); err != nil {
		return err
	}
	took := time.Since(began)
	var record factsRecord
	var gathering sync.WaitGroup
	gathering.Go(func() { record.Facts = d.gather(ctx, dir, &job) })
	hears, err := d.pong(ctx, dir, heard)
	gathering.Wait()
	if err = cmp.Or(err, context.Cause(ctx)); err != nil {
		return err
	}
	share := &record.Facts.Share
	share.FileSystem, share.Record = kind.Name, took
	if offset, known := dir.Offset(); known {
		share.Offset = &offset
	}
	if d.Identity.Rank != 0 { // the head hears itself
		share.Heard = hears
	}
	return dir.Publish(ctx, signal.Nodes, dir.NodeName(d.Identity.Rank, factState), &record, false)
}

// pong waits for the head's question and answers it. It returns whether inotify has told of the question; nil where no
// question came in time.
func (d *doctor) pong(ctx context.Context, dir *signal.Dir, heard <-chan struct{}) (*bool, error) {
	asked, cancel := context.WithTimeoutCause(ctx, d.Join+pingTime, errPing)
	defer cancel()
	over := false // the head was told to end
	err := dir.Await(asked, signal.Control, func(l signal.Listing) bool {
		over = l.Has(signal.NameDrain)
		return over || l.Has(pingName)
	})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil, over:
		return nil, nil
	}
	if err := dir.Mark(ctx, signal.Nodes, dir.NodeName(d.Identity.Rank, pongState)); err != nil {
		return nil, err
	}
	told := pause.Until(heard, hearTime)
	return &told, nil
}

// runWorker is the part of all others.
func (d *doctor) runWorker(ctx context.Context) (int, error) {
	finding, cancel := context.WithTimeoutCause(ctx, d.Join+min(lateTime, d.Join), errJoin)
	defer cancel()
	finder := signal.NewFinder(d.place())
	dir, job, err := finder.Find(finding)
	if errors.Is(err, errJoin) && ctx.Err() == nil {
		return 0, d.unseen(ctx, finder)
	}
	if err != nil {
		return 0, err
	}
	if job.Size != d.Identity.Size {
		return 0, &roles.LaunchError{
			Problem: fmt.Sprintf("cannot take part as rank %d of %d (%s): the head examines %d nodes", d.Identity.Rank, d.Identity.Size, d.Identity.Host, job.Size),
			Mend:    "start all ranks by one launch",
		}
	}
	if err := d.member(ctx, dir, job, finder.FileSystem(finding)); err != nil {
		return 0, err
	}
	return d.leave(ctx, dir)
}

// unseen is the error of a node that no head has met.
func (d *doctor) unseen(ctx context.Context, finder *signal.Finder) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTime, errLook)
	defer cancel()
	kind := finder.FileSystem(ctx)
	seen := fmt.Sprintf("the head's run %s was not seen there for %s", d.place().Run, time.Since(d.began).Round(time.Second/10))
	mend := "see whether this is the same file system as on the head, and whether its task has started"
	if kind.Name != "" {
		seen += " (it is on " + kind.Name + ")"
	}
	return &signal.DirError{Path: d.LogDir, Host: d.Identity.Host, Seen: seen, Mend: mend}
}

// leave waits until the head has published the report's exit code, and returns it. No node leaves before: some
// launchers end all tasks when one has ended.
func (d *doctor) leave(ctx context.Context, dir *signal.Dir) (int, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, d.Join+2*pingTime+d.factTime(), errEnd)
	defer cancel()
	if err := dir.Await(waiting, signal.Control, func(l signal.Listing) bool { return l.Has(signal.NameDrain) }); err != nil {
		return 0, fmt.Errorf("cannot learn how it has ended on %s: nothing came from the head: %w", d.Identity.Host, err)
	}
	var end signal.DrainRecord
	if err := dir.Read(waiting, signal.Control, signal.NameDrain, &end); err != nil {
		return 0, err
	}
	return end.Code, dir.Mark(waiting, signal.Nodes, dir.NodeName(d.Identity.Rank, signal.Done))
}
