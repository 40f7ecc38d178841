package peerlink

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestAsk verifies that a worker answers a request at once, and not with its next heartbeat.
func TestAsk(t *testing.T) {
	inMemory(t, "in memory", func(t *testing.T, _ *memory, h *aHead, _ *aWorker) {
		before := h.news.count("1 heard")
		h.RequestHeartbeats()
		synctest.Wait()
		if answers := h.news.count("1 heard") - before; answers != 1 {
			t.Errorf("the head has had %d answers", answers)
		}
	})
}

// TestStrangerAtTheEnd verifies that a connection that arrives while the head ends is closed at
// once; otherwise the end would wait for the whole handshake timeout.
func TestStrangerAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, _ := (&memory{}).Listen()
		h := NewHead(testConfig(), listener, headNews{newNews()})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		near, far := net.Pipe()
		defer near.Close()
		begin := time.Now()
		h.handleConn(ctx, far, h.addUnproven(far))
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}
