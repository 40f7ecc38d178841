package pmi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// hall connects the nodes of a test: it implements Peers for all of them, with a head, and collective
// operations in memory.
type hall struct {
	*Node
	spawn func(hall *hall, s SpawnRequest) (string, error)

	mu       sync.Mutex
	jobs     map[string]*Job
	meetings map[string]*meeting
	spoil    func([]byte) []byte // changes the data of a barrier
	entered  []string            // collective operations, and the ranks that have entered them
	unmapped bool                // jobs have no process mapping, like large and uneven ones
}

// meeting is a collective operation that not all ranks have entered.
type meeting struct {
	came  map[int]bool
	nodes map[int]rendezvous.Exchange
	done  chan struct{}
	err   error
}

// direct is a connection to a head in the same process.
type direct struct {
	Transport
	head *Head
}

func (d direct) CallHead(ctx context.Context, name string, data []byte) ([]byte, error) {
	return d.head.HandleCall(ctx, 0, name, data)
}

func newHall() *hall {
	head := NewHead(HeadConfig{InitialJob: &Job{}})
	return &hall{Node: NewNode(direct{head: head}, 0, nil), jobs: make(map[string]*Job),
		meetings: make(map[string]*meeting)}
}

func (h *hall) EnterProcs(
	ctx context.Context, kind CollectiveKind, of []ProcID, who ProcID, data rendezvous.Exchange,
) error {
	name, job := fmt.Sprintf("%s %#v", kind, of), h.jobs[who.Job]
	h.mu.Lock()
	h.entered = append(h.entered, fmt.Sprintf("%s by %d", kind, who.Rank))
	m := h.meetings[name]
	if m == nil {
		m = &meeting{came: make(map[int]bool), nodes: make(map[int]rendezvous.Exchange), done: make(chan struct{})}
		h.meetings[name] = m
	}
	m.came[who.Rank], m.nodes[job.Nodes[who.Rank]] = true, data
	if len(m.came) == len(job.Nodes) {
		delete(h.meetings, name)
		m.err = h.exchange(slices.Collect(maps.Values(m.nodes)))
		close(m.done)
	}
	h.mu.Unlock()
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// exchange sends the data of each node to all.
func (h *hall) exchange(nodes []rendezvous.Exchange) (err error) {
	var all []byte
	for _, node := range nodes {
		if node.Send != nil {
			all = append(all, node.Send()...)
		}
	}
	if h.spoil != nil {
		all = h.spoil(all)
	}
	for _, node := range nodes {
		if node.Receive != nil {
			err = errors.Join(err, node.Receive(all))
		}
	}
	return err
}

func (h *hall) SpawnJob(_ context.Context, s SpawnRequest) (string, error) {
	if h.spawn == nil {
		return "", NotSupported
	}
	return h.spawn(h, s)
}

// aborted holds the arguments of PMI1Config.Abort.
type aborted struct {
	rank, code int
	words      string
}

// open creates the servers of a job, one per node that has ranks of it.
func (h *hall) open(job *Job, abort func(aborted)) map[int]*PMI1Server {
	spaces := make(map[int]*PMI1Server)
	for _, node := range job.Nodes {
		if spaces[node] == nil {
			spaces[node] = NewPMI1Server(PMI1Config{Job: job, Log: zap.NewNop(), Handlers: Handlers{
				Node: node, Peers: h, AbortJob: func(by ProcID, code int,
					words string) {
					abort(aborted{by.Rank, code, words})
				},
			}})
		}
		if h.unmapped {
			delete(spaces[node].values, "PMI_process_mapping")
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs[job.Name] = job
	return spaces
}

// world is a job whose ranks are clients within the test.
type world struct {
	*hall
	ranks   []*client
	aborts  chan aborted
	serving sync.WaitGroup
	parting []SessionState // valid after serving has ended
}

// job returns a job whose ranks are on these nodes.
func job(nodes ...int) *Job {
	hosts := make([]string, slices.Max(nodes)+1)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("host%d", i)
	}
	return &Job{Name: "job", Hosts: hosts, Nodes: nodes, UniverseSize: 16}
}

// serveJob starts a job whose ranks have sent their first command; the caller must close all of them.
func serveJob(ctx context.Context, t *testing.T, h *hall, job *Job) *world {
	t.Helper()
	w := &world{hall: h, aborts: make(chan aborted, 8), parting: make([]SessionState, len(job.Nodes))}
	spaces := h.open(job, func(a aborted) { w.aborts <- a })
	for rank, node := range job.Nodes {
		ours, theirs := net.Pipe()
		w.serving.Go(func() { w.parting[rank] = spaces[node].ServeRank(ctx, rank, ours) })
		c := over(theirs)
		w.ranks = append(w.ranks, c)
		if err := c.init(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// each runs do for every rank, concurrently.
func (w *world) each(t *testing.T, do func(rank int, c *client) error) {
	t.Helper()
	errs := make([]error, len(w.ranks))
	var all sync.WaitGroup
	for rank, c := range w.ranks {
		all.Go(func() { errs[rank] = do(rank, c) })
	}
	all.Wait()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// end closes all ranks and returns the final states of their sessions.
func (w *world) end() []SessionState {
	for _, c := range w.ranks {
		c.close()
	}
	w.serving.Wait()
	return w.parting
}
