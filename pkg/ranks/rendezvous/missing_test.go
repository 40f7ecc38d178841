package rendezvous

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestWarnings verifies that missing ranks of a fence are reported after 15 s, 30 s, 1 min and then
// every minute, by one of the waiting nodes.
func TestWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := []NodeRanks{{0, "n0", []int{0, 1}}, {1, "n1", []int{2, 3}}, {2, "n2", []int{4}}}
		world := NewLayout(places)
		ctx, cancel := context.WithCancel(t.Context())
		var tasks sync.WaitGroup
		background := func(task func(context.Context)) { tasks.Go(func() { task(ctx) }) }
		head, hall := NewHead(world, zap.NewNop()), new(Worlds)
		hall.Add("ours", World{head, nodesOf(len(places))})
		said, logs := observer.New(zap.WarnLevel)
		began := time.Now()
		var nodes []*Node
		for _, place := range places {
			n := NewNode(Config{
				Self: place, Layout: func() Layout { return world }, Log: zap.New(said), Background: background,
				Dial: hall.LocalDialer("ours", place.Node, background),
			})
			nodes = append(nodes, n)
			background(func(ctx context.Context) { n.Run(ctx, door{make(chan net.Conn), make(chan struct{})}) })
		}
		gather := func(node int) {
			tasks.Go(func() { _, _ = nodes[node].GatherGroup(ctx, "f", Group{Local: places[node].Ranks}, nil) })
		}
		gather(2)
		time.Sleep(5 * time.Second)
		tasks.Go(func() { _ = nodes[1].EnterGroup(ctx, "f", Group{Local: places[1].Ranks}, 2, Exchange{}) })
		gather(0)
		time.Sleep(170 * time.Second)

		var at []string
		for _, entry := range logs.All() {
			at = append(at, entry.Time.Sub(began).Round(5*time.Second).String())
			if !strings.Contains(entry.Message, "missing: rank 3 on n1") {
				t.Errorf("%s", entry.Message)
			}
		}
		if want := []string{"15s", "30s", "1m0s", "2m0s"}; !slices.Equal(at, want) {
			t.Errorf("people are told at %s, want %s", at, want)
		}
		cancel()
		tasks.Wait()
	})
}
