package pmi1

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hall connects the nodes of a test: it implements Peers for all of them, in memory.
type hall struct {
	spawn func(hall *hall, s pmi.SpawnRequest) (string, error)

	mu        sync.Mutex
	nodes     map[string]int // number of nodes with ranks of each job
	meetings  map[string]*meeting
	published map[string]pmi.Entry
	spoil     func([]byte) []byte // changes the result of a fence
	unmapped  bool                // jobs have no process mapping, like large and uneven ones
}

type meeting struct {
	came int
	data []byte
	done chan struct{}
}

func newHall() *hall {
	return &hall{nodes: make(map[string]int), meetings: make(map[string]*meeting), published: make(map[string]pmi.Entry)}
}

var _ Peers = (*hall)(nil)

func (h *hall) GatherProcs(ctx context.Context, kind pmi.CollectiveKind, of []pmi.ProcID, data []byte) ([]byte, error) {
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

func (h *hall) PublishEntries(_ context.Context, entries []pmi.Entry) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range entries {
		if _, there := h.published[e.Key]; there {
			return pmi.Duplicate
		}
		h.published[e.Key] = e
	}
	return nil
}

func (h *hall) LookupEntries(_ context.Context, keys []string, _ bool) (found []pmi.Entry, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		if e, there := h.published[key]; there {
			found = append(found, e)
		}
	}
	return found, nil
}

func (h *hall) UnpublishEntries(_ context.Context, by pmi.ProcID, keys []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		if h.published[key].Publisher != by {
			return pmi.NotFound
		}
		delete(h.published, key)
	}
	return nil
}

func (h *hall) SpawnJob(_ context.Context, s pmi.SpawnRequest) (string, error) {
	if h.spawn == nil {
		return "", pmi.NotSupported
	}
	return h.spawn(h, s)
}

// aborted holds the arguments of Config.Abort.
type aborted struct {
	rank, code int
	words      string
}

// open creates the servers of a job, one per node that has ranks of it.
func (h *hall) open(job *pmi.Job, abort func(aborted), entered func(int)) map[int]*Server {
	spaces := make(map[int]*Server)
	for _, node := range job.Nodes {
		if spaces[node] == nil {
			spaces[node] = New(Config{
				Job: job, Node: node, Peers: h, OnBarrierEntry: entered, Log: zap.NewNop(),
				AbortJob: func(rank, code int, words string) { abort(aborted{rank, code, words}) },
			})
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
	entered []int
	aborts  chan aborted
	serving sync.WaitGroup
	parting []SessionState // valid after serving has ended
}

// job returns a job whose ranks are on these nodes.
func job(nodes ...int) *pmi.Job {
	hosts := make([]string, slices.Max(nodes)+1)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("host%d", i)
	}
	return &pmi.Job{Name: "job", Hosts: hosts, Nodes: nodes, UniverseSize: 16}
}

// serve starts a job whose ranks have sent their first command; the caller must close all of them.
func serve(ctx context.Context, t *testing.T, h *hall, job *pmi.Job) *world {
	t.Helper()
	w := &world{hall: h, aborts: make(chan aborted, 8), parting: make([]SessionState, len(job.Nodes))}
	var mu sync.Mutex
	spaces := h.open(job, func(a aborted) { w.aborts <- a }, func(rank int) {
		mu.Lock()
		defer mu.Unlock()
		w.entered = append(w.entered, rank)
	})
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
