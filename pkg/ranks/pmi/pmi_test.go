package pmi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// team is a head and nodes with direct calls between them.
type team struct {
	t     *testing.T
	head  *Head
	nodes []*Node
	told  [][]string // requests to each node's server
	fail  string     // the request that fails
	mu    sync.Mutex
}

// member is one node's access to the others, and its server.
type member struct {
	*team
	node int
}

func (t *team) CallNode(ctx context.Context, node int, name string, data []byte) ([]byte, error) {
	return t.nodes[node].HandleOrder(ctx, node, name, data)
}
func (*team) AddRanks([]rendezvous.NodeRanks) {}

func (m member) CallHead(ctx context.Context, name string, data []byte) ([]byte, error) {
	return m.head.HandleCall(ctx, m.node, name, data)
}

func (m member) GatherGroup(_ context.Context, name string, of rendezvous.Group, _ []byte) ([]byte, error) {
	return fmt.Appendf(nil, "%s of %s here %v", name, of.Ranks, of.Local), nil
}
func (member) EnterGroup(context.Context, string, rendezvous.Group, int, rendezvous.Exchange) error {
	return errors.New("rank 1 will never come")
}

type server struct{ member }

func (s server) note(format string, args ...any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	word := fmt.Sprintf(format, args...)
	s.told[s.node] = append(s.told[s.node], word)
	if s.fail != "" && strings.HasPrefix(word, s.fail) {
		return errors.New("no luck")
	}
	return nil
}
func (s server) AddJob(_ context.Context, job *Job) error { return s.note("add %s", job.Name) }
func (s server) StartRanks(_ context.Context, job *Job, by SpawnRequest) error {
	return s.note("start %v by %v", job.LocalRanks(s.node), by.Requester)
}
func (s server) FetchModex(_ context.Context, of ProcID) ([]byte, error) {
	return []byte(of.String()), s.note("modex %v", of)
}
func (s server) NotifyRanks(_ context.Context, e Event) error { return s.note("tell %d", e.Code) }
func (s server) RemoveJob(_ context.Context, j string) error  { return s.note("remove %s", j) }

// raise creates a head and nodes; the first ranks nodes have a rank each, and each node has the
// given number of slots.
func raise(t *testing.T, nodes, ranks, slots int) *team {
	world := &Job{Name: "w", UniverseSize: nodes * slots}
	m := &team{t: t, told: make([][]string, nodes)}
	for node := range nodes {
		world.Hosts = append(world.Hosts, fmt.Sprint("n", node))
		m.nodes = append(m.nodes, NewNode(member{m, node}, node, server{member{m, node}}))
	}
	for rank := range ranks {
		world.Nodes = append(world.Nodes, rank)
	}
	m.head = NewHead(HeadConfig{Nodes: m, InitialJob: world,
		Slots: slices.Repeat([]int{slots}, nodes), OnSpawn: func(*Job) {}})
	for _, n := range m.nodes {
		if err := n.AddJob(t.Context(), world); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (t *team) asked(node int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.told[node], "; ")
}

func fails(t *testing.T, err error, status Status, words string) {
	t.Helper()
	if err == nil || StatusOf(err) != status || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v (%d), want %q (%d)", err, StatusOf(err), words, status)
	}
}

func TestSpawn(t *testing.T) {
	m := raise(t, 3, 1, 2)
	by := ProcID{"w", 0}
	commands := []Command{{Argv: []string{"a"}, Ranks: 3}, {Argv: []string{"b"}, Ranks: 1}}
	name, err := m.nodes[0].SpawnJob(t.Context(), SpawnRequest{Requester: by, Commands: commands})
	if name != "w-1" || err != nil {
		t.Fatalf("spawned %q, %v", name, err)
	}
	for node, want := range []string{
		"add w; add w-1; start [0] by w.0", "add w; add w-1; start [1 3] by w.0", "add w; add w-1; start [2] by w.0",
	} {
		if got := m.asked(node); got != want {
			t.Errorf("node %d was asked %q, want %q", node, got, want)
		}
	}
	if got := m.nodes[2].RunNumber(ProcID{"w-1", 3}); got != 4 {
		t.Errorf("the number is %d", got)
	}
	got, err := m.nodes[1].GatherProcs(t.Context(), Connect, []ProcID{{"w-1", AllRanks}, by}, nil)
	if string(got) != "MPI connect of 0-4 here [2 4]" || err != nil {
		t.Errorf("gathered %q, %v", got, err)
	}
	_, err = m.nodes[0].SpawnJob(t.Context(), SpawnRequest{Requester: by,
		Commands: []Command{{Argv: []string{"a"}, Ranks: 2}}})
	fails(t, err, NoSpace, "cannot place 2 ranks: only 1 of 6 slots on 3 nodes can be used: "+
		"give a higher --slots-per-node")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	if err := m.head.AwaitSpawnedJobs(ctx); err == nil || err.Error() != "over" {
		t.Errorf("waited for spawned ranks: %v", err)
	}
	for node := range m.nodes {
		if err := m.nodes[node].ReportJobEnd(t.Context(), "w-1"); err != nil {
			t.Error(err)
		}
	}
	if err := m.head.AwaitSpawnedJobs(t.Context()); err != nil || !strings.HasSuffix(m.asked(0), "remove w-1") {
		t.Errorf("%v; %s", err, m.asked(0))
	}
}

func TestSpawnFails(t *testing.T) {
	m := raise(t, 2, 2, 3)
	spawn := func(commands ...Command) error {
		_, err := m.nodes[1].SpawnJob(t.Context(), SpawnRequest{Requester: ProcID{"w", 1}, Commands: commands})
		return err
	}
	fails(t, spawn(), BadParam, "cannot spawn: no commands were given")
	fails(t, spawn(Command{Argv: []string{"a"}}), BadParam, "cannot spawn: no ranks were requested")
	fails(t, spawn(Command{Argv: []string{"a"}, Ranks: 1,
		Info: map[string]string{"host": "n1,nope"}}), BadParam,
		"cannot spawn on nope: it is not a node of this run; the nodes are n0, n1")
	m.fail = "start"
	fails(t, spawn(Command{Argv: []string{"a", "b"}, Ranks: 4}), Failed, "cannot spawn a b: no luck")
	for node := range m.nodes {
		if !strings.HasSuffix(m.asked(node), "remove w-1") || m.nodes[node].RunNumber(ProcID{"w-1", 0}) != -1 {
			t.Errorf("node %d keeps the job: %s", node, m.asked(node))
		}
	}
	m.fail = ""
	if err := spawn(Command{Argv: []string{"a"}, Ranks: 4}); err != nil {
		t.Errorf("the slots were not given back: %v", err)
	}
}

func TestPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		ranks         int
		host          string
		used          []int
		oversubscribe bool
		want          []int
	}{
		"spread":           {3, "", []int{0, 0, 0}, false, []int{0, 1, 2}},
		"where is room":    {3, "", []int{2, 0, 1}, false, []int{1, 1, 2}},
		"on a host":        {2, "n2", []int{0, 0, 0}, false, []int{2, 2}},
		"with its domain":  {2, "n0.site.org:2,n2", []int{1, 0, 0}, false, []int{0, 2}},
		"none free":        {4, "", []int{1, 1, 1}, false, nil},
		"none free at all": {4, "", []int{2, 2, 2}, true, []int{0, 0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			c := Command{Ranks: tc.ranks, Info: map[string]string{"host": tc.host}}
			got, err := PlaceRanks(c, []string{"n0", "n1", "n2"}, []int{2, 2, 2}, tc.used, tc.oversubscribe)
			if !slices.Equal(got, tc.want) || (err == nil) != (tc.want != nil) {
				t.Errorf("%v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func TestPublish(t *testing.T) {
	m := raise(t, 2, 2, 1)
	a, b := m.nodes[0], m.nodes[1]
	by := ProcID{"w", 0}
	_, err := b.LookupEntries(t.Context(), []string{"svc"}, false)
	fails(t, err, NotFound, "cannot look up svc")
	found := make(chan string)
	go func() {
		entries, err := b.LookupEntries(t.Context(), []string{"svc"}, true)
		found <- fmt.Sprint(entries, err)
	}()
	if err := a.PublishEntries(t.Context(), []Entry{{Key: "svc", Publisher: by, Value: []byte("port")}}); err != nil {
		t.Fatal(err)
	}
	if got := <-found; got != fmt.Sprint([]Entry{{Key: "svc", Publisher: by, Value: []byte("port")}}, error(nil)) {
		t.Errorf("found %s", got)
	}
	fails(t, b.PublishEntries(t.Context(), []Entry{{Key: "svc", Publisher: ProcID{"w", 1}}}), Duplicate, "w.0 has")
	if err := a.UnpublishEntries(t.Context(), by, nil); err != nil {
		t.Fatal(err)
	}
	_, err = b.LookupEntries(t.Context(), []string{"svc"}, false)
	fails(t, err, NotFound, "")
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err = b.LookupEntries(ctx, []string{"svc"}, true)
	fails(t, err, TimedOut, "")
}

// distant is a connection to a head that does not see the end of the caller's context.
type distant struct{ member }

func (d distant) CallHead(ctx context.Context, name string, data []byte) ([]byte, error) {
	return d.member.CallHead(context.WithoutCancel(ctx), name, data)
}

// TestLookupEndsAtTheHead verifies that the head does not wait longer than the node that asks.
func TestLookupEndsAtTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := raise(t, 1, 1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		_, err := NewNode(distant{member{m, 0}}, 0, server{member{m, 0}}).LookupEntries(ctx, []string{"svc"}, true)
		fails(t, err, TimedOut, "")
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it was told after %s", took)
		}
	})
}

func TestModexAndNotify(t *testing.T) {
	m := raise(t, 3, 2, 1)
	got, err := m.nodes[0].FetchModex(t.Context(), ProcID{"w", 1})
	if string(got) != "w.1" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	_, err = m.nodes[0].FetchModex(t.Context(), ProcID{"w", 2})
	fails(t, err, NotFound, "w.2")
	if err := m.nodes[1].NotifyNodes(t.Context(), Event{Code: -7}); err != nil {
		t.Fatal(err)
	}
	for node, want := range []string{"tell -7", "modex w.1", "tell -7"} {
		if got := m.asked(node); !strings.HasSuffix(got, want) {
			t.Errorf("node %d was asked %q", node, got)
		}
	}
	_, err = m.nodes[0].GatherProcs(t.Context(), Fence, []ProcID{{"who", AllRanks}}, nil)
	fails(t, err, NotFound, "cannot find who")
}

// broken is a rendezvous that the death of another process ends.
type broken struct{ member }

func (broken) GatherGroup(context.Context, string, rendezvous.Group, []byte) ([]byte, error) {
	return nil, errors.New("rank 1 will never come")
}

func TestGatherHasPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := raise(t, 1, 1, 1)
		n := NewNode(broken{member{m, 0}}, 0, server{member{m, 0}})
		if err := n.AddJob(t.Context(), m.head.cfg.InitialJob); err != nil {
			t.Fatal(err)
		}
		n.FailureDelay = 5 * time.Second
		began := time.Now()
		_, err := n.GatherProcs(t.Context(), Fence, []ProcID{{"w", AllRanks}}, nil)
		fails(t, err, Failed, "rank 1 will never come")
		if took := time.Since(began); took != n.FailureDelay {
			t.Errorf("it was told after %s", took)
		}
		err = n.EnterProcs(t.Context(), Barrier, []ProcID{{"w", AllRanks}}, ProcID{"w", 0}, rendezvous.Exchange{})
		fails(t, err, Failed, "rank 1 will never come")
		if took := time.Since(began); took != 2*n.FailureDelay {
			t.Errorf("a rank was told after %s", took)
		}
	})
}
