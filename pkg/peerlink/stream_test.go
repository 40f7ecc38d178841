package peerlink

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"
)

func TestMeetingsHaveConnectionsOfTheirOwn(t *testing.T) {
	listener, err := TCP{}.Listen()
	must(t, err)
	h := NewHead(slowConfig(), listener, nil)
	h.HandleStreams(RendezvousStream, func(_ context.Context, node int, conn io.ReadWriteCloser) {
		_, _ = conn.Write([]byte{byte(node)})
		_ = conn.Close()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	defer running.Wait()
	defer cancel()
	for _, node := range []int{0, 3} {
		conn, err := DialStream(ctx, RendezvousStream, slowConfig().Key, node, TCP{},
			[]string{listener.Addr().String()})
		must(t, err)
		got, err := io.ReadAll(conn)
		if err != nil || len(got) != 1 || int(got[0]) != node {
			t.Errorf("node %d was served as %v: %v", node, got, err)
		}
		_ = conn.Close()
	}
	for _, wrong := range []int{4, 1<<31 - 1} {
		if conn, err := DialStream(ctx, RendezvousStream, slowConfig().Key, wrong, TCP{},
			[]string{listener.Addr().String()}); err == nil {
			_ = conn.Close()
			t.Errorf("node %d was let in", wrong)
		}
	}
}

func TestSummonedForACommand(t *testing.T) {
	listener, err := TCP{}.Listen()
	must(t, err)
	peers := headNews{newNews()}
	h := NewHead(slowConfig(), listener, peers)
	came := make(chan int, 1)
	h.HandleStreams(CommandStream, func(_ context.Context, node int, conn io.ReadWriteCloser) {
		came <- node
		_ = conn.Close()
	})
	run(t, h.Run)
	where := []string{listener.Addr().String()}
	w := NewWorker(slowConfig(), 2, TCP{}, where, workerNews{newNews()}, well)
	w.HandleStreamRequests(func() {
		if conn, err := DialStream(t.Context(), CommandStream, slowConfig().Key, 2, TCP{}, where); err == nil {
			_ = conn.Close()
		}
	})
	run(t, w.Run)
	// The worker is notified first; heartbeats that the head sends before that are lost.
	peers.wait(t, "2 connected", 1)
	for _, nobody := range []int{-1, 0, 1, 4} {
		h.RequestStream(nobody)
	}
	h.RequestStream(2)
	select {
	case node := <-came:
		if node != 2 {
			t.Errorf("node %d came", node)
		}
	case <-time.After(ceiling):
		t.Error("node 2 was summoned and did not come")
	}
	if conn, err := DialStream(t.Context(), RendezvousStream, slowConfig().Key, 2, TCP{}, where); err == nil {
		_ = conn.Close()
		t.Error("a worker was let in for what nobody serves")
	}
}
