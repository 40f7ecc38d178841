package pmi

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"go.uber.org/zap"
)

// hall connects the nodes of a test: it implements Peers for all of them, with a head, and collective
// operations in memory.
type hall struct {
	*Node
	spawn func(hall *hall, s SpawnRequest) (string, error)

	mu       sync.Mutex
	nodes    map[string]int // number of nodes with ranks of each job
	meetings map[string]*meeting
	spoil    func([]byte) []byte // changes the result of a fence
	entered  []string            // collective operations, and the ranks that have entered them
	unmapped bool                // jobs have no process mapping, like large and uneven ones
}

// meeting is a collective operation that not all nodes have entered.
type meeting struct {
	came int
	data []byte
	done chan struct{}
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
	return &hall{Node: NewNode(direct{head: head}, 0, nil), nodes: make(map[string]int), meetings: make(map[string]*meeting)}
}

func (h *hall) GatherProcs(ctx context.Context, kind CollectiveKind, of []ProcID, data []byte) ([]byte, error) {
	name := fmt.Sprintf("%s %#v", kind, of)
	h.mu.Lock()
	m := h.meetings[name]
	if m == nil {
		m = &meeting{done: make(chan struct{})}
		h.meetings[name] = m
	}
	m.came++
	m.data = append(m.data, data...)
	if m.came == h.nodes[of[0].Job] {
		delete(h.meetings, name)
		if h.spoil != nil {
			m.data = h.spoil(m.data)
		}
		close(m.done)
	}
	h.mu.Unlock()
	select {
	case <-m.done:
		return m.data, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (h *hall) RecordEntry(kind CollectiveKind, _ []ProcID, who ProcID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entered = append(h.entered, fmt.Sprintf("%s by %d", kind, who.Rank))
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
				Node: node, Peers: h, AbortJob: func(by ProcID, code int, words string) { abort(aborted{by.Rank, code, words}) },
			}})
		}
		if h.unmapped {
			delete(spaces[node].values, "PMI_process_mapping")
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes[job.Name] = len(spaces)
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

func keysOf(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
