package rendezvous

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// TestEndedRanks verifies that the ends of the ranks of all nodes are known.
func TestEndedRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := []NodeRanks{{0, "n0", []int{0, 1}}, {1, "n1", []int{2, 3}}}
		world := NewLayout(places)
		ctx, cancel := context.WithCancel(t.Context())
		var tasks sync.WaitGroup
		background := func(task func(context.Context)) { tasks.Go(func() { task(ctx) }) }
		head, hall := NewHead(world, zap.NewNop()), new(Worlds)
		hall.Add("ours", World{head, nodesOf(len(places))})
		var nodes []*Node
		for _, place := range places {
			n := NewNode(Config{
				Self: place, Layout: func() Layout { return world }, Log: zap.NewNop(),
				Background: background, Dial: hall.LocalDialer("ours", place.Node, background),
			})
			nodes = append(nodes, n)
			background(func(ctx context.Context) {
				n.Run(ctx, door{make(chan net.Conn), make(chan struct{})})
			})
		}
		expect := func(want ...int) {
			t.Helper()
			time.Sleep(10 * time.Second)
			ended, newest := hall.EndedRanks("ours")
			if !slices.Equal(ended, want) || len(want) > 0 && time.Since(newest) > 10*time.Second {
				t.Errorf("ended are %v, the newest %v ago, want %v", ended, time.Since(newest), want)
			}
		}
		expect()
		nodes[0].ReportRankEnd(0, "exit code 0")
		nodes[1].ReportRankEnd(3, "exit code 0")
		expect(0, 3)
		nodes[0].ReportRankEnd(1, "exit code 1")
		expect(0, 1, 3)
		if ended, _ := hall.EndedRanks("theirs"); ended != nil {
			t.Errorf("of an unknown world, ended are %v", ended)
		}
		cancel()
		tasks.Wait()
	})
}
