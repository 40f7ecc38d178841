package planning

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/roles"
)

// testTasks returns a function that starts tasks, and one that ends them and waits for them, which the
// end of the test does, too.
func testTasks(t *testing.T) (background func(task func(ctx context.Context)), cancel func()) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	cancel = func() {
		end()
		tasks.Wait()
	}
	t.Cleanup(cancel)
	return func(task func(ctx context.Context)) { tasks.Go(func() { task(ctx) }) }, cancel
}

// TestClaim checks that daemons of one host have different blocks even if they look for one
// at the same time, that a block in which a process listens is left out, and that a block is free
// again when its daemon ends.
func TestClaim(t *testing.T) {
	background, cancel := testTasks(t)
	claim := func() int {
		block, err := ClaimBlock(background, t.Name(), 0)
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
	background, _ = testTasks(t)
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

// TestBlockAmongStrangers checks that a node has ports although others claim all blocks and listen in
// each of them: only these ports are left out of the plan.
func TestBlockAmongStrangers(t *testing.T) {
	for first := LowestPort; first < highestPort; first += roles.BlockSize {
		name := fmt.Sprintf("@bringupd-ports-%d", first)
		claim, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			continue // somebody else has it, which is the same
		}
		defer func() { _ = claim.Close() }()
	}
	background, _ := testTasks(t)
	claim := func(number int) *PortBlock {
		t.Helper()
		block, err := ClaimBlock(background, t.Name(), number)
		if err != nil {
			t.Fatal(err)
		}
		return block
	}
	first, second := claim(0), claim(1)
	for port := range first.kept {
		if _, both := second.kept[port]; both {
			t.Errorf("two daemons keep port %d", port)
		}
	}
	for first := LowestPort; first < highestPort; first += roles.BlockSize {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+1))
		if err != nil {
			continue // kept above
		}
		defer func() { _ = listener.Close() }()
	}
	block := claim(2)
	if !slices.Contains(block.Busy, block.First+1) || len(block.Busy) > earlyPorts {
		t.Errorf("the block from %d has the busy ports %v", block.First, block.Busy)
	}
	plan, err := roles.MakePlan([]roles.Definition{{
		Name: "server", Program: roles.Program{Ports: []roles.PortRequest{{Name: "http", Count: 1}}},
		Placement: roles.Placement{Nodes: 1, InstancesPerNode: 3, NodesPerInstance: 1, RanksPerNode: 1},
	}}, []roles.NodeFacts{{Host: "n0", FirstPort: block.First, BusyPorts: block.Busy}})
	if err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range plan.Endpoints(&plan.Roles[0]) {
		if slices.Contains(block.Busy, endpoint.Port) {
			t.Errorf("port %d is planned, and is busy", endpoint.Port)
		}
	}
}

// TestCostOfBlock checks which of two blocks is better: one that nobody uses, one with busy ports, one
// that another daemon claims, and one with busy ports at which ranks meet.
func TestCostOfBlock(t *testing.T) {
	const first = 20000
	meeting := first + roles.BlockSize - MeetingPorts
	last := -1
	for _, block := range []*PortBlock{
		{First: first, claim: nopCloser{}},
		{First: first, claim: nopCloser{}, Busy: []int{first, meeting - 1}},
		{First: first, claim: nopCloser{}, Busy: []int{first, meeting - 2, meeting - 1}},
		{First: first},
		{First: first, Busy: []int{first}},
		{First: first, claim: nopCloser{}, Busy: []int{meeting}},
	} {
		cost := block.cost()
		if cost <= last || (cost == 0) != (last < 0) {
			t.Errorf("the cost with the busy ports %v is %d, and %d of the block before", block.BusyPorts(), cost, last)
		}
		last = cost
	}
}

type nopCloser struct{}

func (nopCloser) Close() error { return nil }

// TestBlockKeepsPorts checks that no process can listen on a port that a block keeps, whatever
// options and address its socket has, and that one can as soon as the port is released.
func TestBlockKeepsPorts(t *testing.T) {
	background, cancel := testTasks(t)
	block, err := ClaimBlock(background, t.Name(), 0)
	if err != nil {
		t.Fatal(err)
	}
	mayListen := func(port int) bool {
		t.Helper()
		refused := 0
		for _, option := range []int{0, unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
			for _, host := range []string{"127.0.0.1", "0.0.0.0", ""} {
				config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
					if option != 0 {
						_ = raw.Control(func(fd uintptr) {
							err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, 1)
						})
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
	leaveConnections(t, block.First)
	block.Keep(block.First)
	want("kept again beside the connections of an ended process", false, false, false)
	block.Release(block.First)
	block.KeepOnly(block.First+1, block.First+earlyPorts)
	want("planned", true, false, true)
	if mayListen(block.First + earlyPorts) {
		t.Error("a planned port is free")
	}
	cancel()
	want("at the end", true, true, true)
	(*PortBlock)(nil).KeepOnly(block.First)
	(*PortBlock)(nil).Release(block.First)
}

// leaveConnections makes connections linger at a port, as those of a server that has ended do.
func leaveConnections(t *testing.T, port int) {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []interface{ Close() error }{server, client, listener} {
		if err := end.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
