package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/peerlink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ceiling limits waits that end much sooner on any machine.
const ceiling = time.Minute

// stage is a world whose nodes use connections in memory or through the peer links' port, and whose
// programs use real sockets.
type stage struct {
	t     testing.TB
	head  *Head
	nodes []*Node
	paths []string
	world Layout

	mu      sync.Mutex
	aborted []string
	steps   []string // reported by ranks
}

// raise creates a world of the given number of nodes and ranks per node.
func raise(t testing.TB, nodes, each int, lifelines bool) *stage {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &stage{t: t}
	var places []NodeRanks
	for node := range nodes {
		place := NodeRanks{Node: node, Host: fmt.Sprintf("n%d", node)}
		for local := range each {
			place.Ranks = append(place.Ranks, node*each+local)
		}
		places = append(places, place)
	}
	s.world = NewLayout(places)
	s.head = NewHead(s.world, zap.NewNop())
	var tasks sync.WaitGroup
	s.head.SetCallHandler(echo("head"), func(task func(context.Context)) { tasks.Go(func() { task(ctx) }) })
	hall := new(Worlds)
	hall.Add("ours", World{s.head, nodesOf(nodes)})
	dial := func(node int) func(context.Context) (io.ReadWriteCloser, error) {
		return hall.LocalDialer("ours", node, func(task func(context.Context)) { tasks.Go(func() { task(ctx) }) })
	}
	if lifelines {
		dial = callers(ctx, t, nodes, hall, &tasks)
	}
	for node := range nodes {
		dir, err := os.MkdirTemp("", "meet")
		if err != nil {
			t.Fatal(err)
		}
		listener, err := peerlink.ListenLocal(dir, "meet")
		if err != nil {
			t.Fatal(err)
		}
		n := NewNode(Config{
			Self: places[node], Layout: func() Layout { return s.world }, Log: zap.NewNop(),
			Dial: dial(node), HandleOrder: echo(fmt.Sprint("n", node)),
			Background: func(task func(context.Context)) { tasks.Go(func() { task(ctx) }) },
			AbortJob: func(rank, code int, message string) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.aborted = append(s.aborted, fmt.Sprintf("%d %d %s", rank, code, message))
			},
			ReportStep: func(rank int, step float64) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.steps = append(s.steps, fmt.Sprintf("%d at %v", rank, step))
			},
		})
		s.nodes, s.paths = append(s.nodes, n), append(s.paths, dir+"/meet")
		tasks.Go(func() { n.Run(ctx, listener) })
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	t.Cleanup(func() {
		cancel()
		tasks.Wait()
	})
	return s
}

// nodesOf returns the nodes of a world that has all nodes of a run.
func nodesOf(count int) func() []int {
	return func() (nodes []int) {
		for node := range count {
			nodes = append(nodes, node)
		}
		return nodes
	}
}

// echo answers with its name and the request; the request "wait" never returns.
func echo(who string) Handler {
	return func(ctx context.Context, node int, name string, data []byte) ([]byte, error) {
		switch name {
		case "wait":
			<-ctx.Done()
			return nil, ctx.Err()
		case "fail":
			return nil, errors.New("no luck")
		}
		return fmt.Appendf(nil, "%s of %d: %s %s", who, node, name, data), nil
	}
}

// callers returns functions by which nodes connect through the peer links' port on this machine,
// where hall serves them until ctx ends.
func callers(ctx context.Context, t testing.TB, nodes int, hall *Worlds,
	tasks *sync.WaitGroup) func(node int) func(context.Context) (io.ReadWriteCloser, error) {
	t.Helper()
	listener, err := peerlink.TCP{}.Listen()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	key := make([]byte, peerlink.KeySize)
	head := peerlink.NewHead(peerlink.Config{Key: key, Nodes: nodes, HeartbeatInterval: time.Second}, listener, nil)
	head.HandleStreams(peerlink.RendezvousStream, hall.ServeNode)
	tasks.Go(func() { head.Run(ctx) })
	return func(node int) func(context.Context) (io.ReadWriteCloser, error) {
		return DialWorld("ours", peerlink.StreamDialer(peerlink.RendezvousStream, key, node,
			peerlink.TCP{}, []string{"127.0.0.1:" + port}))
	}
}

// rank connects as a rank.
func (s *stage) rank(rank int) *Client {
	s.t.Helper()
	return s.dial(s.world.nodeOfRank(rank).Node, &rank)
}

func (s *stage) dial(node int, rank *int) *Client {
	s.t.Helper()
	c, err := DialAsRank(s.t.Context(), s.paths[node], rank)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// all connects as all ranks.
func (s *stage) all() (all []*Client) {
	for rank := range len(s.world.nodeByRank) {
		all = append(all, s.rank(rank))
	}
	return all
}

func want(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Fatalf("error is %v, want %q in it", err, word)
		}
	}
}

// until waits for a condition and reports the observed value if it does not hold in time.
func until(t testing.TB, what string, holds func() (bool, any)) {
	t.Helper()
	for deadline := time.Now().Add(ceiling); ; time.Sleep(time.Millisecond) {
		is, seen := holds()
		if is {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s; seen: %v", what, ceiling, seen)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
