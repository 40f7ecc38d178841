package instances

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

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
		block, err := ClaimPortBlock(background, t.Name(), 0)
		if err != nil {
			t.Error(err)
			return 0
		}
		return block.First
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

// TestPortBlockAvoidsBoundPorts checks that a block of which a port is bound, though no process listens
// there, is not claimed while there are others.
func TestPortBlockAvoidsBoundPorts(t *testing.T) {
	claim := func() *PortBlock {
		ctx, cancel := context.WithCancel(t.Context())
		var tasks sync.WaitGroup
		block, err := ClaimPortBlock(func(task func(ctx context.Context)) { tasks.Go(func() { task(ctx) }) }, t.Name(), 0)
		cancel()
		tasks.Wait()
		if err != nil {
			t.Fatal(err)
		}
		return block
	}
	first := claim().First
	socket, err := bindPort(first + 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(socket) }()
	if again := claim().First; again == first {
		t.Errorf("the block from %d was claimed, and its port %d is bound", first, first+1)
	}
}

// TestPortBlockKeepsPorts checks that no process can listen on a port that a block keeps, whatever
// options and address its socket has, and that one can as soon as the port is released.
func TestPortBlockKeepsPorts(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	block, err := ClaimPortBlock(func(task func(ctx context.Context)) { tasks.Go(func() { task(ctx) }) }, t.Name(), 0)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	mayListen := func(port int) bool {
		t.Helper()
		refused := 0
		for _, option := range []int{0, unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
			for _, host := range []string{"127.0.0.1", "0.0.0.0", ""} {
				config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
					if option != 0 {
						_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, 1) })
					}
					return err
				}}
				listener, err := config.Listen(t.Context(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
				switch {
				case errors.Is(err, unix.EADDRINUSE):
					refused++
				case err != nil:
					t.Fatal(err)
				default:
					_ = listener.Close()
				}
			}
		}
		if refused != 0 && refused != 9 {
			t.Errorf("port %d is refused to %d of 9 sockets", port, refused)
		}
		return refused == 0
	}
	want := func(what string, free ...bool) {
		t.Helper()
		for at, isFree := range free {
			if got := mayListen(block.First + at); got != isFree {
				t.Errorf("%s: port %d is free: %v, want %v", what, at, got, isFree)
			}
		}
	}
	want("before the plan", false, false, false)
	block.Release(block.First)
	want("released", true, false, false)
	block.KeepOnly(block.First+1, block.First+earlyPorts)
	want("planned", true, false, true)
	if mayListen(block.First + earlyPorts) {
		t.Error("a planned port is free")
	}
	cancel()
	tasks.Wait()
	want("at the end", true, true, true)
	(*PortBlock)(nil).KeepOnly(block.First)
	(*PortBlock)(nil).Release(block.First)
}
