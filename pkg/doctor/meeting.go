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

// meeting is the head's state of one examination: the run directory and the nodes that have joined.
type meeting struct {
	*doctor
	dir      *signal.Dir
	job      signal.Job
	fresh    bool // the log directory did not exist before
	nodes    *signal.Watch
	listener net.Listener // nil if there are no other nodes
	stop     context.CancelCauseFunc
	running  sync.WaitGroup
	came     []int // indices of the nodes that have joined
}

// open creates the run directory, publishes the head's addresses there, and starts the head's
// listener.
func (d *doctor) open(ctx context.Context) (m *meeting, err error) {
	m = &meeting{doctor: d, fresh: d.Identity.Size == 1 && !isThere(d.LogDir)}
	address, _ := d.Address() // its error is among the facts
	// Listen for the other nodes, and publish the port with the head's address and name.
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
	// Signals do not cancel it, because the result is published after a signal, too.
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	m.stop = stop
	// Create the run directory. From now on watch it and answer connections.
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

// close stops the listener and the watch of the run directory.
func (m *meeting) close() {
	m.stop(nil)
	if m.listener != nil {
		_ = m.listener.Close()
	}
	m.running.Wait()
}

// localJoin limits the wait for other nodes if the log directory is on a local file system. The
// nodes would not see each other there.
const localJoin = 10 * time.Second

// collect runs the head's part: it waits for the other nodes to join, measures their round trips,
// and reads their facts into c. At the same time the head gathers its own facts.
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

// ranksBelow returns the node indices from 0 to size-1.
func ranksBelow(size int) (all []int) {
	for rank := range size {
		all = append(all, rank)
	}
	return all
}

// shown waits until all of the nodes have published a state, and returns the indices of the nodes
// that have not and of those that have.
func (m *meeting) shown(ctx context.Context, within time.Duration, ranks []int, state string) (missing, there []int) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errPing)
	defer cancel()
	last, _ := m.nodes.Wait(ctx, func(l signal.Listing) bool { return len(signal.Without(ranks, l.Ranks(state))) == 0 })
	missing = signal.Without(ranks, last.Ranks(state)) // an error only means that some are missing
	return missing, signal.Without(ranks, missing)
}

// ping publishes a name that every node answers, and returns the round-trip time of each answer,
// measured by the head's clock.
func (m *meeting) ping(ctx context.Context) (map[int]time.Duration, error) {
	trips := make(map[int]time.Duration)
	asked := time.Now()
	if err := m.dir.Mark(ctx, signal.Control, pingName); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pingTime, errPing)
	defer cancel()
	// A node that does not answer will also be missing among the facts.
	_, _ = m.nodes.Wait(ctx, func(l signal.Listing) bool {
		for _, rank := range l.Ranks(pongState) {
			if _, known := trips[rank]; !known {
				trips[rank] = l.At.Sub(asked)
			}
		}
		return len(trips) >= len(m.came)
	})
	return trips, nil
}

// readers is the maximum number of records that are read concurrently.
const readers = 16

// read returns the facts of the nodes, and the indices of nodes with an unreadable record. One
// damaged record must not keep the others out of the report.
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
				record.Facts.Rank = rank // the record is not trusted in this
				told[i] = &record.Facts
			}
			return nil
		})
	}
	_ = reading.Wait() // returns no error: failed records are in unread
	// Separate the facts from the nodes without facts.
	for i, facts := range told {
		if facts == nil {
			unread = append(unread, ranks[i])
			continue
		}
		all = append(all, *facts)
	}
	return all, unread
}

// end publishes the exit code, waits until all nodes that have joined have seen it, and removes the
// run directory. It does so even after a signal. It returns err, joined with errors of its own.
func (m *meeting) end(ctx context.Context, code int, err error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), endTime, errEnd)
	defer cancel()
	if told := m.dir.Publish(ctx, signal.Control, signal.NameDrain, &signal.DrainRecord{Code: code}, false); told != nil {
		return errors.Join(err, told)
	}
	// List the nodes again: m.nodes may lack one that has just joined, and another one may join during
	// the wait.
	left := m.dir.Await(ctx, signal.Nodes, func(now signal.Listing) bool {
		return len(signal.Without(now.Ranks(signal.Joined), append([]int{0}, now.Ranks(signal.Done)...))) == 0
	})
	if left != nil {
		return err // a node that still reads the directory must find it
	}
	removed := m.dir.Remove(ctx)
	if m.fresh {
		_ = os.Remove(m.LogDir) // fails if another run uses the directory by now
	}
	return errors.Join(err, removed)
}
