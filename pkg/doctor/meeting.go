package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/signal"
)

// meeting is the doctor's run directory, and who has come there, as the head has it.
type meeting struct {
	*doctor
	dir      *signal.Dir
	job      signal.Job
	fresh    bool // the log directory was made for this alone
	nodes    *signal.Watch
	listener net.Listener // nil where there is no other node
	stop     context.CancelCauseFunc
	running  sync.WaitGroup
	came     []int
}

// open makes the run directory, and says there where the head is.
func (d *doctor) open(ctx context.Context) (m *meeting, err error) {
	m = &meeting{doctor: d, fresh: d.Identity.Size == 1 && !isThere(d.LogDir)}
	address, _ := d.Address() // that there is none is among the facts
	m.job = signal.Job{Addresses: []string{address}, Program: d.Program, PID: os.Getpid()}
	if d.Identity.Size > 1 {
		if m.listener, err = d.Network.Listen(); err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(m.listener.Addr().String())
		for _, host := range []string{address, d.Identity.Host} {
			if host != "" {
				m.job.Lifeline = append(m.job.Lifeline, net.JoinHostPort(host, port))
			}
		}
	}
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx)) // the end is told after a signal, too
	m.stop = stop
	making, cancel := context.WithTimeoutCause(ctx, d.Join, errJoin)
	defer cancel()
	if m.dir, err = signal.Create(making, d.place(), m.job); err != nil {
		m.close()
		return nil, err
	}
	m.job.Nonce, m.job.Host = m.dir.Nonce(), d.Identity.Host
	m.nodes = m.dir.Watch(signal.Nodes, signal.HeadPace)
	m.running.Go(func() { m.nodes.Run(running) })
	if m.listener != nil {
		m.running.Go(func() { d.greet(running, m.listener, m.dir.Secret(secretName)) })
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

// localJoin bounds the wait for others where the log directory is on a file system of one machine: they will hardly
// come.
const localJoin = 10 * time.Second

// collect has all nodes gather their facts, and brings them together.
func (m *meeting) collect(ctx context.Context, c *scene) error {
	own, ctx := errgroup.WithContext(ctx)
	own.Go(func() error { return m.member(ctx, m.dir, m.job, m.dir.FileSystem()) })
	own.Go(func() (err error) {
		within := m.Join
		if m.dir.FileSystem().Local && m.apart() {
			within = min(within, localJoin)
		}
		c.NotSeen, m.came = m.shown(ctx, within, ranksBelow(m.Identity.Size), signal.Joined)
		c.Waited = time.Since(m.began)
		if c.Trips, err = m.ping(ctx); err != nil {
			return err
		}
		silent, told := m.shown(ctx, m.factTime(), m.came, factState)
		c.Facts, c.Silent = m.read(ctx, told)
		c.Silent = slices.Sorted(slices.Values(append(c.Silent, silent...)))
		return nil
	})
	return own.Wait()
}

func ranksBelow(size int) (all []int) {
	for rank := range size {
		all = append(all, rank)
	}
	return all
}

// shown waits until all of these ranks are seen in a state, and returns who never was and who was.
func (m *meeting) shown(ctx context.Context, within time.Duration, ranks []int, state string) (missing, there []int) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errPing)
	defer cancel()
	last, _ := m.nodes.Wait(ctx, func(l signal.Listing) bool { return len(signal.Without(ranks, l.Ranks(state))) == 0 })
	missing = signal.Without(ranks, last.Ranks(state)) // who is missing says it all
	return missing, signal.Without(ranks, missing)
}

// ping writes a name that every node answers with one of its own, and returns how long each answer took by the head's
// clock.
func (m *meeting) ping(ctx context.Context) (map[int]time.Duration, error) {
	trips := make(map[int]time.Duration)
	asked := time.Now()
	if err := m.dir.Mark(ctx, signal.Control, pingName); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pingTime, errPing)
	defer cancel()
	_, _ = m.nodes.Wait(ctx, func(l signal.Listing) bool { // who does not answer will hardly tell its facts
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
	told := make([]*Facts, len(ranks))
	var reading errgroup.Group
	reading.SetLimit(readers)
	for i, rank := range ranks {
		reading.Go(func() error {
			var record factsRecord
			if err := m.dir.Read(ctx, signal.Nodes, m.dir.NodeName(rank, factState), &record); err == nil {
				record.Facts.Rank = rank // whatever it says
				told[i] = &record.Facts
			}
			return nil
		})
	}
	_ = reading.Wait() // it has no error: whose record has one is unread
	for i, facts := range told {
		if facts == nil {
			unread = append(unread, ranks[i])
			continue
		}
		all = append(all, *facts)
	}
	return all, unread
}

// end tells all who came how it has ended, waits until they know, and removes the run directory: after a signal, too.
func (m *meeting) end(ctx context.Context, code int, err error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), endTime, errEnd)
	defer cancel()
	if told := m.dir.Publish(ctx, signal.Control, signal.NameDrain, &signal.DrainRecord{Code: code}, false); told != nil {
		return errors.Join(err, told)
	}
	// m.nodes may not have shown who has just joined, and somebody may join while others are waited for.
	left := m.dir.Await(ctx, signal.Nodes, func(now signal.Listing) bool {
		return len(signal.Without(now.Ranks(signal.Joined), append([]int{0}, now.Ranks(signal.Done)...))) == 0
	})
	if left != nil {
		return err // who still looks there must not find it gone
	}
	removed := m.dir.Remove(ctx)
	if m.fresh {
		_ = os.Remove(m.LogDir) // it stays where somebody else uses it by now
	}
	return errors.Join(err, removed)
}
