package instances

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestGrantsWithoutAnswer checks that a daemon whose ports are not passed on, because the other one
// does not answer, waits no longer than its context.
func TestGrantsWithoutAnswer(t *testing.T) {
	place := signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: 2, Host: "n0"}
	dir, err := signal.CreateRun(t.Context(), place, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unixpacket", grantAddress(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	// This ends a wait that would not end.
	defer time.AfterFunc(5*time.Second, func() { _ = listener.Close() }).Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	block := NewPortBlock(func(func(context.Context)) {})
	if err := block.TakeGrants(ctx, dir, 1, []int{20000}); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
