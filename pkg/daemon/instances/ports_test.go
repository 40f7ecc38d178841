package instances

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles"
)

// TestClaimPortBlock checks that daemons of one host have different blocks even if they look for one
// at the same time, that a block in which a process listens is left out, and that a block is free
// again when its daemon ends.
func TestClaimPortBlock(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	background := func(task func(ctx context.Context)) { tasks.Go(func() { task(ctx) }) }
	defer tasks.Wait()
	defer cancel()
	claim := func() int {
		first, err := ClaimPortBlock(background, t.Name(), 0)
		if err != nil {
			t.Error(err)
		}
		return first
	}
	// Several at once.
	const daemons = 4
	var mu sync.Mutex
	blocks := make(map[int]bool)
	var claims sync.WaitGroup
	for range daemons {
		claims.Go(func() {
			first := claim()
			mu.Lock()
			defer mu.Unlock()
			blocks[first] = true
		})
	}
	claims.Wait()
	if len(blocks) != daemons {
		t.Errorf("%d daemons have the blocks %v", daemons, blocks)
	}
	// All of them end, and a process listens in one of the blocks.
	cancel()
	tasks.Wait()
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	for first := range blocks {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+roles.BlockSize-1))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		if again := claim(); again == first {
			t.Errorf("the block %d was claimed, and a process listens at its end", first)
		}
		break
	}
	again := claim()
	if !blocks[again] {
		t.Errorf("the block %d was claimed, and not one of %v, which are free again", again, blocks)
	}
}
