package rendezvous

import (
	"cmp"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
)

// TestWorlds verifies that a connection reaches the world that it names, as the node that it is
// there, and is closed if there is no such world, or the node is not in it.
func TestWorlds(t *testing.T) {
	synctest.Test(t, testWorlds)
}

func testWorlds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	background := func(task func(context.Context)) { tasks.Go(func() { task(ctx) }) }
	var worlds Worlds
	newWorld := func(nodes ...int) World {
		var places []NodeRanks
		for i := range nodes {
			places = append(places, NodeRanks{Node: i, Host: "n", Ranks: []int{i}})
		}
		return World{NewHead(NewLayout(places), zap.NewNop()), func() []int { return nodes }}
	}
	found := newWorld(3)
	worlds.Add("a", newWorld(0, 2))
	worlds.Add("b", newWorld(2, 1))
	worlds.SetFinder(func(name string) (World, bool) { return found, name == "c" })
	isConnected := func(world World, node int) bool {
		world.mu.Lock()
		defer world.mu.Unlock()
		peer := world.peers[node]
		return peer != nil && peer.closeConn != nil
	}
	for _, tc := range []struct {
		name  string
		node  int
		world World // zero if the connection must be closed
		index int
	}{
		{"a", 2, worlds.worlds["a"], 1},
		{"b", 2, worlds.worlds["b"], 0},
		{"c", 3, found, 0},
		{"a", 1, World{}, 0},
		{"c", 2, World{}, 0},
		{"d", 2, World{}, 0},
		{"", 2, World{}, 0},
		{strings.Repeat("a", 100), 2, World{}, 0},
	} {
		ours, theirs := net.Pipe()
		background(func(ctx context.Context) { worlds.ServeNode(ctx, tc.node, theirs) })
		_, err := DialWorld(tc.name, func(context.Context) (io.ReadWriteCloser, error) { return ours, nil })(ctx)
		closed := make(chan error, 1)
		background(func(context.Context) {
			_, err := io.Copy(io.Discard, ours)
			closed <- cmp.Or(err, io.EOF)
		})
		synctest.Wait()
		isOpen := err == nil && len(closed) == 0
		if isOpen != (tc.world.Head != nil) || isOpen && !isConnected(tc.world, tc.index) {
			t.Errorf("node %d in world %q: open %v, error %v", tc.node, tc.name, isOpen, err)
		}
		_ = ours.Close()
	}
	// A lost node is lost in its worlds only.
	worlds.Remove("b")
	worlds.MarkNodeLost(2, "gone")
	if a := worlds.worlds["a"]; !a.lostNodes[1] || a.lostNodes[0] || len(found.lostNodes) > 0 {
		t.Errorf("lost are %v and %v", a.lostNodes, found.lostNodes)
	}
	if _, known := worlds.lookUp("b"); known {
		t.Error("the removed world is still there")
	}
}
