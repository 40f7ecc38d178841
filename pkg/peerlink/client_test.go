package peerlink

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// visitors records the events of guests on the head's side.
type visitors chan string

func (v visitors) ClientActive(id ClientID, look bool) {
	v <- fmt.Sprintf("%x called %v", id[:1], look)
}

func (v visitors) ClientGone(id ClientID, how CloseReason) {
	v <- fmt.Sprintf("%x hung: %v", id[:1], how)
}

func (v visitors) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, one := range want {
		select {
		case got := <-v:
			if got != one {
				t.Errorf("%q was told, not %q", got, one)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%q was never told", one)
		}
	}
}

func TestGuest(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(context.Background())
	listener, err := TCP{}.Listen()
	if err != nil {
		t.Fatal(err)
	}
	head := NewHead(slowConfig(), listener, headNews{newNews()})
	told := make(visitors, 16)
	head.AcceptClients(told)
	over := make(chan struct{})
	go func() {
		defer close(over)
		head.Run(ctx)
	}()
	where := []string{"127.0.0.1:1", listener.Addr().String()}
	visit := func(first byte) *Client { return ConnectClient(ctx, slowConfig().Key, ClientID{first}, TCP{}, where) }
	polite := visit(1)
	told.expect(t, "01 called false", "01 called true")
	polite.RequestPoll()
	told.expect(t, "01 called true")
	if !polite.SendHeartbeat() {
		t.Error("a beat was not told")
	}
	told.expect(t, "01 called false")
	polite.Disconnect()
	told.expect(t, "01 hung: left")
	dead := visit(2)
	told.expect(t, "02 called false", "02 called true")
	if !isLetIn(dead) {
		t.Fatal("the second one was not let in")
	}
	_ = dead.link.Load().conn.Close() // as its kernel does
	told.expect(t, "02 hung: closed")
	<-dead.link.Load().ended
	if dead.SendHeartbeat() {
		t.Error("a beat was told where nothing can be")
	}
	dead.Disconnect()
	if stranger := ConnectClient(ctx, otherKey, ClientID{3}, TCP{}, where[1:]); isLetIn(stranger) {
		t.Error("who does not know the key was let in")
	}
	last := visit(4)
	told.expect(t, "04 called false", "04 called true")
	if !isLetIn(last) {
		t.Fatal("the last one was not let in")
	}
	end()
	<-over
	<-last.link.Load().ended
	last.Disconnect()
}

func isLetIn(g *Client) bool {
	<-g.dialed
	return g.link.Load() != nil
}
