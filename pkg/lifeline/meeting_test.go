package lifeline

import (
	"context"
	"io"
	"sync"
	"testing"
)

func TestMeetingsHaveConnectionsOfTheirOwn(t *testing.T) {
	listener, err := TCP{}.Listen()
	if err != nil {
		t.Fatal(err)
	}
	h := NewHead(slowConfig(), listener, nil)
	h.Meet(func(_ context.Context, rank int, conn io.ReadWriteCloser) {
		_, _ = conn.Write([]byte{byte(rank)})
		_ = conn.Close()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.Run(ctx) })
	defer running.Wait()
	defer cancel()
	for _, rank := range []int{0, 3} {
		conn, err := Call(ctx, slowConfig().Key, rank, TCP{}, []string{listener.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if err != nil || len(got) != 1 || int(got[0]) != rank {
			t.Errorf("rank %d was served as %v: %v", rank, got, err)
		}
		_ = conn.Close()
	}
	for _, wrong := range []int{4, 1<<31 - 1} {
		if conn, err := Call(ctx, slowConfig().Key, wrong, TCP{}, []string{listener.Addr().String()}); err == nil {
			_ = conn.Close()
			t.Errorf("rank %d was let in", wrong)
		}
	}
}
