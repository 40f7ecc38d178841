package preflight

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
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// rendezvous is the head's state of one examination: the run directory and the nodes that have
// joined.
type rendezvous struct {
	*examiner
	dir           *signal.Dir
	job           record.Job
	createdLogDir bool // the log directory did not exist before
	nodes         *signal.Watch
	listener      net.Listener // nil if there are no other nodes
	stop          context.CancelCauseFunc
	background    sync.WaitGroup
	joined        []int // indices of the nodes that have joined
}

// openRendezvous creates the run directory, publishes the head's addresses there, and starts the
// head's listener.
func (d *examiner) openRendezvous(ctx context.Context) (m *rendezvous, err error) {
	m = &rendezvous{examiner: d, createdLogDir: d.Identity.Size == 1 && !directoryExists(d.LogDir)}
	address, _ := d.Address() // its error is among the facts
	m.job = record.Job{Addresses: []string{address}, ProgramVersion: d.Program, PID: os.Getpid()}
	if d.Identity.Size > 1 {
		if m.listener, err = d.Network.Listen(); err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(m.listener.Addr().String())
		for _, host := range []string{address, d.Identity.Host} {
			if host != "" {
				m.job.LinkAddresses = append(m.job.LinkAddresses, net.JoinHostPort(host, port))
			}
		}
	}
	// Signals do not cancel it, because the result is published after a signal, too.
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	m.stop = stop
	making, cancel := context.WithTimeoutCause(ctx, d.JoinTimeout, errJoinTimeout)
	defer cancel()
	if m.dir, err = signal.CreateRun(making, d.runLocation(), m.job); err != nil {
		m.close()
		return nil, err
	}
	m.job.Nonce, m.job.Host = m.dir.Nonce(), d.Identity.Host
	m.nodes = m.dir.NewWatch(signal.NodesDir, signal.HeadPace)
	m.background.Go(func() { m.nodes.Run(running) })
	if m.listener != nil {
		key := m.dir.DeriveSecret(doctorSecretName)
		m.background.Go(func() { d.serveConnections(running, m.listener, key) })
	}
	return m, nil
}

// close stops the listener and the watch of the run directory.
func (m *rendezvous) close() {
	m.stop(nil)
	if m.listener != nil {
		_ = m.listener.Close()
	}
	m.background.Wait()
}

// localJoinTimeout limits the wait for other nodes if the log directory is on a local file system.
// The nodes would not see each other there.
const localJoinTimeout = 10 * time.Second

// collectFacts runs the head's part: it waits for the other nodes to join, measures their round
// trips, and reads their facts into c. At the same time the head gathers its own facts.
func (m *rendezvous) collectFacts(ctx context.Context, c *launchState) error {
	own, ctx := errgroup.WithContext(ctx)
	own.Go(func() error { return m.joinAndReport(ctx, m.dir, m.job, m.dir.FileSystem()) })
	own.Go(func() (err error) {
		within := m.JoinTimeout
		if m.dir.FileSystem().Local && m.onSeparateHosts() {
			within = min(within, localJoinTimeout)
		}
		var all []int
		for node := range m.Identity.Size {
			all = append(all, node)
		}
		c.NotJoined, m.joined = m.awaitState(ctx, within, all, record.StateJoined)
		c.Waited = time.Since(m.began)
		if c.RoundTrips, err = m.measureRoundTrips(ctx); err != nil {
			return err
		}
		silent, published := m.awaitState(ctx, m.factsTimeout(), m.joined, factState)
		c.Facts, c.WithoutFacts = m.readFacts(ctx, published)
		c.WithoutFacts = slices.Sorted(slices.Values(append(c.WithoutFacts, silent...)))
		return nil
	})
	return own.Wait()
}

// awaitState waits until all of the nodes have published a state, and returns the indices of the
// nodes that have not and of those that have.
func (m *rendezvous) awaitState(
	ctx context.Context, within time.Duration, nodes []int, state record.State,
) (missing, there []int) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errPingTimeout)
	defer cancel()
	// an error only means that some are missing
	last, _ := m.nodes.WaitListing(ctx, func(l signal.Listing) bool {
		return len(signal.WithoutNodes(nodes, l.NodesIn(state))) == 0
	})
	missing = signal.WithoutNodes(nodes, last.NodesIn(state))
	return missing, signal.WithoutNodes(nodes, missing)
}

// measureRoundTrips publishes a name that every node answers, and returns the round-trip time of
// each answer, measured by the head's clock.
func (m *rendezvous) measureRoundTrips(ctx context.Context) (map[int]time.Duration, error) {
	trips := make(map[int]time.Duration)
	asked := time.Now()
	if err := m.dir.WriteMark(ctx, signal.ControlDir, pingName); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pingTimeout, errPingTimeout)
	defer cancel()
	// A node that does not answer will also be missing among the facts.
	_, _ = m.nodes.WaitListing(ctx, func(l signal.Listing) bool {
		for _, node := range l.NodesIn(pongState) {
			if _, known := trips[node]; !known {
				trips[node] = l.PolledAt.Sub(asked)
			}
		}
		return len(trips) >= len(m.joined)
	})
	return trips, nil
}

// maxFactsReads is the maximum number of records that are read concurrently.
const maxFactsReads = 16

// readFacts returns the facts of the nodes, and the indices of nodes with an unreadable record. One
// damaged record must not keep the others out of the report.
func (m *rendezvous) readFacts(ctx context.Context, nodes []int) (all []DoctorFacts, unread []int) {
	ctx, cancel := context.WithTimeoutCause(ctx, pingTimeout, errPingTimeout)
	defer cancel()
	facts := make([]*DoctorFacts, len(nodes))
	var reading errgroup.Group
	reading.SetLimit(maxFactsReads)
	for i, node := range nodes {
		reading.Go(func() error {
			var record factsRecord
			name := m.dir.NodeName(node, factState)
			if err := m.dir.ReadRecord(ctx, signal.NodesDir, name, &record); err == nil {
				record.Facts.NodeIndex = node // the record is not trusted in this
				facts[i] = &record.Facts
			}
			return nil
		})
	}
	_ = reading.Wait() // returns no error: failed records are in unread
	for i, f := range facts {
		if f == nil {
			unread = append(unread, nodes[i])
			continue
		}
		all = append(all, *f)
	}
	return all, unread
}

// publishEnd publishes the exit code, waits until all nodes that have joined have seen it, and
// removes the run directory. It does so even after a signal. It returns err, joined with errors of
// its own.
func (m *rendezvous) publishEnd(ctx context.Context, code int, err error) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), endTimeout, errEndTimeout)
	defer cancel()
	end := &record.OrderlyEnd{Code: code}
	if failed := m.dir.PublishRecord(ctx, signal.ControlDir, signal.NameOrderlyEnd, end, false); failed != nil {
		return errors.Join(err, failed)
	}
	// List the nodes again: m.nodes may lack one that has just joined, and another one may join during
	// the wait.
	left := m.dir.AwaitListing(ctx, signal.NodesDir, func(now signal.Listing) bool {
		done := append([]int{0}, now.NodesIn(record.StateDone)...)
		return len(signal.WithoutNodes(now.NodesIn(record.StateJoined), done)) == 0
	})
	if left != nil {
		return err // a node that still reads the directory must find it
	}
	removed := m.dir.RemoveAll(ctx)
	if m.createdLogDir {
		_ = os.Remove(m.LogDir) // fails if another run uses the directory by now
	}
	return errors.Join(err, removed)
}
