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

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Checks are those of the node itself.
type Checks interface {
	Await(ctx context.Context, progress func(check.Report)) check.Report
	// Longest is how long Await may take.
	Longest() time.Duration
}

// Config is what the doctor is to look at.
type Config struct {
	Identity roles.Identity
	// Alone and Mistake say why this node is looked at by itself: nothing has launched several, or has launched them
	// wrongly. Identity is a job of one then.
	Alone, Mistake *roles.LaunchError
	Hostname       string // as the kernel has it
	LogDir         string
	TempDir        string
	Address        func() (string, error) // where peers reach this node
	Framework      framework.Framework
	Checks         Checks
	Policy         check.Policy
	Environ        []string
	Program        string        // version of this bringupd
	Join           time.Duration // until all nodes have met

	Access   signal.Access    // its zero value: the file system itself
	Network  lifeline.Network // nil: TCP
	Resolver Resolver         // nil: the system's
	Now      func() time.Time // this node's clock; nil: the system's
	Root     string           // where /proc and /dev/shm are; empty: /
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
	errFact = errors.New("the time for all facts is over")
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
	c := scene{
		Launcher: d.Identity.Launcher, Size: d.Identity.Size, Hosts: d.Identity.Hosts, Alone: d.Alone, Mistake: d.Mistake,
		LogDir: d.LogDir, Framework: framework.WordsOf(d.Framework), Policy: d.Policy, Checked: d.Policy.Mode != check.ModeOff,
	}
	fresh := d.Identity.Size == 1 && !isThere(d.LogDir)
	m, err := d.open(ctx)
	if err != nil && ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if err != nil {
		c.ShareErr = err
		c.Facts = []Facts{d.gather(ctx, nil, nil)}
	} else {
		defer m.close()
		err = m.collect(ctx, &c)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			// The others have nothing to tell of: whatever befell us is the share's.
			return 0, m.end(context.WithoutCancel(ctx), health.OutcomeOf(health.Share).Code, err, fresh)
		}
	}
	c.Took = time.Since(d.began)
	report := judge(c)
	return report.Code, m.end(ctx, report.Code, show(report), fresh)
}

// isThere tells whether a directory is there, by a listing of its parent.
func isThere(dir string) bool {
	entries, err := os.ReadDir(filepath.Dir(dir))
	return err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == filepath.Base(dir) })
}

// meeting is the doctor's run directory, and who has come there.
type meeting struct {
	*doctor
	dir      *signal.Dir
	job      signal.Job
	nodes    *signal.Watch
	listener net.Listener
	stop     context.CancelCauseFunc
	running  sync.WaitGroup
	came     []int
}

// open makes the run directory, and says there where the head is.
func (d *doctor) open(ctx context.Context) (*meeting, error) {
	m := &meeting{doctor: d}
	address, _ := d.Address() // that there is none is among the facts
	if d.Identity.Size > 1 {
		listener, err := d.Network.Listen()
		if err != nil {
			return nil, err
		}
		m.listener = listener
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		for _, host := range []string{address, d.Identity.Host} {
			if host != "" {
				m.job.Lifeline = append(m.job.Lifeline, net.JoinHostPort(host, port))
			}
		}
	}
	m.job.Addresses, m.job.Program, m.job.PID = []string{address}, d.Program, os.Getpid()
	made, cancel := context.WithTimeoutCause(ctx, d.Join, errJoin)
	defer cancel()
	dir, err := signal.Create(made, d.place(), m.job)
	if err != nil {
		if m.listener != nil {
			_ = m.listener.Close()
		}
		return nil, err
	}
	m.dir, m.job.Nonce, m.job.Host = dir, dir.Nonce(), d.Identity.Host
	m.nodes = dir.Watch(signal.Nodes, signal.HeadPace)
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx)) // the end is told after a signal, too
	m.stop = stop
	m.running.Go(func() { m.nodes.Run(running) })
	if m.listener != nil {
		m.running.Go(func() { greet(m.listener, dir.Nonce(), d.Now) })
	}
	return m, nil
}

func (m *meeting) close() {
	m.stop(nil)
	if m.listener != nil {
		_ = m.listener.Close()
	}
	m.running.Wait()
}

// localJoin bounds the wait for others where the log directory is on a file
// system of one machine: they will hardly come.
const localJoin = 10 * time.Second

// collect has all nodes gather their facts, and brings them together.
func (m *meeting) collect(ctx context.Context, c *scene) error {
	own, ctx := errgroup.WithContext(ctx)
	own.Go(func() error { return m.member(ctx, m.dir, m.job, m.dir.FileSystem()) })
	own.Go(func() error {
		within := m.Join
		if m.dir.FileSystem().Local && c.apart() {
			within = min(within, localJoin)
		}
		size := m.Identity.Size
		seen := m.shown(ctx, within, errJoin, func(l signal.Listing) bool { return len(l.Missing(signal.Joined, size)) == 0 })
		c.NotSeen, m.came, c.Waited = seen.Missing(signal.Joined, size), seen.Ranks(signal.Joined), time.Since(m.began)
		var err error
		if c.Trips, err = m.ping(ctx); err != nil {
			return err
		}
		told := func(l signal.Listing) (missing []int) { return without(m.came, l.Ranks(factState)) }
		seen = m.shown(ctx, m.factTime(), errFact, func(l signal.Listing) bool { return len(told(l)) == 0 })
		c.Silent = told(seen)
		var unread []int
		c.Facts, unread = m.read(ctx, without(m.came, c.Silent))
		c.Silent = slices.Sorted(slices.Values(append(c.Silent, unread...)))
		return nil
	})
	return own.Wait()
}

// shown waits until a listing of the nodes' names satisfies until, and returns the last listing.
func (m *meeting) shown(ctx context.Context, within time.Duration, cause error, until func(signal.Listing) bool) signal.Listing {
	ctx, cancel := context.WithTimeoutCause(ctx, within, cause)
	defer cancel()
	shown, _ := m.nodes.Wait(ctx, until) // who is missing says it all
	return shown
}

// without returns the ranks of all that are not in some; both are sorted.
func without(all, some []int) []int {
	return slices.DeleteFunc(slices.Clone(all), func(rank int) bool {
		_, found := slices.BinarySearch(some, rank)
		return found
	})
}

// ping writes a name that every node answers with one of its own, and returns how long each answer took by the head's
// clock.
func (m *meeting) ping(ctx context.Context) (map[int]time.Duration, error) {
	trips := make(map[int]time.Duration)
	asked := time.Now()
	if err := m.dir.Mark(ctx, signal.Control, pingName); err != nil {
		return nil, err
	}
	m.shown(ctx, pingTime, errPing, func(l signal.Listing) bool {
		for _, rank := range l.Ranks(pongState) {
			if _, known := trips[rank]; !known {
				trips[rank] = l.At.Sub(asked)
			}
		}
		return len(trips) >= len(m.came)
	})
	return trips, nil
}

// readers is how many records are read at a time.
const readers = 16

// read reads the facts of these ranks, and returns the ranks whose record can't be read: one damaged record must not
// keep those of the others from the report.
func (m *meeting) read(ctx context.Context, ranks []int) (all []Facts, unread []int) {
	ctx, cancel := context.WithTimeoutCause(ctx, pingTime, errPing)
	defer cancel()
	records, errs := make([]factsRecord, len(ranks)), make([]error, len(ranks))
	var reading errgroup.Group
	reading.SetLimit(readers)
	for i, rank := range ranks {
		reading.Go(func() error {
			errs[i] = m.dir.Read(ctx, signal.Nodes, m.dir.NodeName(rank, factState), &records[i])
			return nil
		})
	}
	_ = reading.Wait() // it has no error: those are in errs
	for i, rank := range ranks {
		if errs[i] != nil {
			unread = append(unread, rank)
			continue
		}
		records[i].Facts.Rank = rank // whatever it says
		all = append(all, records[i].Facts)
	}
	return all, unread
}

// end tells all who came how it has ended, waits until they know, and removes
// the run directory; fresh says that the log directory was made for it alone.
func (m *meeting) end(ctx context.Context, code int, err error, fresh bool) error {
	if m == nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, endTime, errEnd)
	defer cancel()
	told := m.dir.Publish(ctx, signal.Control, signal.NameDrain, &signal.DrainRecord{Code: code}, false)
	others := without(m.nodes.Last().Ranks(signal.Joined), []int{0})
	var left []int
	if len(others) > 0 && told == nil {
		shown, _ := m.nodes.Wait(ctx, func(l signal.Listing) bool { return len(without(others, l.Ranks(signal.Done))) == 0 })
		left = without(others, shown.Ranks(signal.Done))
	}
	if told != nil || len(left) > 0 {
		// Who still looks there must not find it gone.
		return errors.Join(err, told)
	}
	removed := m.dir.Remove(ctx)
	if fresh {
		_ = os.Remove(m.LogDir) // it stays where somebody else uses it by now
	}
	return errors.Join(err, removed)
}

// member is what every node does, the head too: it joins, answers, and tells its facts.
func (d *doctor) member(ctx context.Context, dir *signal.Dir, job signal.Job, kind signal.FileSystem) error {
	heard, deaf := dir.Hear(ctx, signal.Control)
	defer deaf()
	began := time.Now()
	joined := &signal.JoinedRecord{Canary: job.Nonce, PID: os.Getpid(), Program: d.Program}
	if err := dir.Publish(ctx, signal.Nodes, dir.NodeName(d.Identity.Rank, signal.Joined), joined, false); err != nil {
		return err
	}
	took := time.Since(began)
	facts := make(chan Facts, 1)
	var gathering sync.WaitGroup
	defer gathering.Wait()
	gathering.Go(func() { facts <- d.gather(ctx, dir, &job) })
	hears, err := d.pong(ctx, dir, heard)
	if err != nil {
		return err
	}
	var record factsRecord
	select {
	case record.Facts = <-facts:
	case <-ctx.Done():
		return context.Cause(ctx)
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
	err := d.await(asked, dir, func(l signal.Listing) bool {
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
	hearing, stop := context.WithTimeoutCause(ctx, hearTime, errPing)
	defer stop()
	select {
	case <-heard:
	case <-hearing.Done():
	}
	told := hearing.Err() == nil
	return &told, nil
}

// await waits until a listing of the names that the head writes satisfies until.
func (d *doctor) await(ctx context.Context, dir *signal.Dir, until func(signal.Listing) bool) error {
	watching, stop := context.WithCancel(ctx)
	control := dir.Watch(signal.Control, signal.WorkerPace(d.Identity.Size))
	var looking sync.WaitGroup
	defer looking.Wait()
	defer stop()
	looking.Go(func() { control.Run(watching) })
	_, err := control.Wait(ctx, until)
	return err
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
	if err := d.await(waiting, dir, func(l signal.Listing) bool { return l.Has(signal.NameDrain) }); err != nil {
		return 0, fmt.Errorf("cannot learn how it has ended on %s: nothing came from the head: %w", d.Identity.Host, err)
	}
	var end signal.DrainRecord
	if err := dir.Read(waiting, signal.Control, signal.NameDrain, &end); err != nil {
		return 0, err
	}
	return end.Code, dir.Mark(waiting, signal.Nodes, dir.NodeName(d.Identity.Rank, signal.Done))
}
