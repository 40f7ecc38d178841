package signal

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestRankOf finds a node by its host: if the guess is right, if it is wrong, and if the node joins
// during the search.
func TestRankOf(t *testing.T) {
	d := create(t, newPlace(t))
	join := func(node int, host string) {
		own := d.ForNode(node)
		own.host = host
		publish(t, own, NodesDir, NodeName(node, 4, record.StateJoined), &record.Joined{})
	}
	join(0, "n0")
	join(2, "n2")
	for _, guess := range []int{0, 2, 3} {
		if node, err := d.AwaitNodeIndex(within(t), "n2", guess); node != 2 || err != nil {
			t.Errorf("with the guess %d it is %d, %v", guess, node, err)
		}
	}
	found := make(chan int)
	go func() {
		node, _ := d.AwaitNodeIndex(within(t), "n3", 3)
		found <- node
	}()
	join(3, "n3")
	if node := <-found; node != 3 {
		t.Errorf("one that joins later is %d", node)
	}
	errOver := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errOver)
	defer cancel()
	if node, err := d.AwaitNodeIndex(ctx, "n1", 1); node >= 0 || !errors.Is(err, errOver) {
		t.Errorf("a host that is not there is %d, %v", node, err)
	}
}
