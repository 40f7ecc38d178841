package signal

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestRankOf finds a node by its host: where the guess is right, where it isn't,
// and where the node joins while it is looked for.
func TestRankOf(t *testing.T) {
	d := create(t, newPlace(t))
	join := func(rank int, host string) {
		own := d.ForNode(rank)
		own.host = host
		publish(t, own, NodesDir, NodeName(rank, 4, StateJoined), &JoinedRecord{})
	}
	join(0, "n0")
	join(2, "n2")
	for _, guess := range []int{0, 2, 3} {
		if rank, err := d.AwaitNodeIndex(within(t), "n2", guess); rank != 2 || err != nil {
			t.Errorf("with the guess %d it is %d, %v", guess, rank, err)
		}
	}
	found := make(chan int)
	go func() {
		rank, _ := d.AwaitNodeIndex(within(t), "n3", 3)
		found <- rank
	}()
	join(3, "n3")
	if rank := <-found; rank != 3 {
		t.Errorf("one that joins later is %d", rank)
	}
	errOver := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errOver)
	defer cancel()
	if rank, err := d.AwaitNodeIndex(ctx, "n1", 1); rank >= 0 || !errors.Is(err, errOver) {
		t.Errorf("a host that is not there is %d, %v", rank, err)
	}
}
