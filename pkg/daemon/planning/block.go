// Package planning makes the plan of the roles of a run: it chooses the nodes, collects what the plan
// depends on, and keeps the planned ports of a node for processes that do not run yet.
package planning

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net"
	"slices"
	"sync"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
)

// The range from which blocks of ports are taken, if the kernel does not assign ports from it. Below
// it are the ports of well-known services.
const (
	LowestPort  = 16384
	highestPort = 32768
)

// MeetingPorts is the number of ports at the end of a block at which ranks meet.
const MeetingPorts = 128

// earlyPorts is the number of ports that a block keeps before it is known which ones are planned: the
// first ones, because ports are planned from there on.
const earlyPorts = 64

// PortBlock is the block of ports of a node. It keeps ports for processes that do not run: their
// addresses are given out before they start, so that no other port could replace them.
type PortBlock struct {
	First int   // 0: no role needs a block
	Busy  []int // sorted ports of the block that other programs had when it was chosen

	mu      sync.Mutex
	kept    map[int]int  // sockets, by port; guarded by mu
	granted map[int]bool // ports that the daemon of a further step keeps; guarded by mu
	claim   io.Closer    // nil if another daemon, or another user, claims the block
}

// KeepOnly keeps these ports, as far as they are free, and releases all others. It does nothing if b
// is nil.
func (b *PortBlock) KeepOnly(ports ...int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	for port := range b.kept {
		if !slices.Contains(ports, port) {
			b.close(port)
		}
	}
	b.mu.Unlock()
	b.Keep(ports...)
}

// Keep keeps these ports, too, as far as they are free. It does nothing if b is nil.
func (b *PortBlock) Keep(ports ...int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, port := range ports {
		if _, isKept := b.kept[port]; isKept || b.granted[port] {
			continue
		}
		if socket, _, err := process.ReservePort(port); err == nil {
			b.kept[port] = socket
		}
	}
}

// Release releases ports for a process that is about to start. It does nothing if b is nil.
func (b *PortBlock) Release(ports ...int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, port := range ports {
		b.close(port)
	}
}

// close releases a port, if it is kept. mu must be held.
func (b *PortBlock) close(port int) {
	if socket, isKept := b.kept[port]; isKept {
		process.ReleasePort(socket)
		delete(b.kept, port)
	}
}

// NewPortBlock returns a block without ports of its own, until the end of the context that background
// has.
func NewPortBlock(background func(task func(ctx context.Context))) *PortBlock {
	return newBlock().endWith(background)
}

func newBlock() *PortBlock { return &PortBlock{kept: make(map[int]int), granted: make(map[int]bool)} }

func (b *PortBlock) endWith(background func(task func(ctx context.Context))) *PortBlock {
	background(func(ctx context.Context) {
		<-ctx.Done()
		b.release()
	})
	return b
}

func (b *PortBlock) release() {
	b.KeepOnly()
	if b.claim != nil {
		_ = b.claim.Close()
	}
}

// PortRange returns the port above all blocks, and how many blocks are below it.
func PortRange() (high, blocks int) {
	high = highestPort
	if ephemeral := health.EphemeralPorts("/"); ephemeral[0] > 0 {
		high = min(high, ephemeral[0])
	}
	return high, (high - LowestPort) / roles.BlockSize
}

// ClaimBlock returns a block of [roles.BlockSize] ports for roles, outside of the range from which
// the kernel assigns ports, until the end of the context that background has. Daemons with different
// numbers, or of other runs, prefer different blocks. The best one is claimed by no other daemon, and
// no program has one of its ports; but any user can claim a block or take a port, so that neither
// excludes it.
func ClaimBlock(background func(task func(ctx context.Context)), run string, number int) (*PortBlock, error) {
	high, blocks := PortRange()
	if blocks <= 0 {
		return nil, fmt.Errorf("the kernel assigns ports from %d: set net.ipv4.ip_local_port_range "+
			"to begin at 32768", high)
	}
	listening, err := health.PortsOfListeners(LowestPort, high-1)
	if err != nil {
		return nil, err
	}
	sum := fnv.New32a()
	sum.Write([]byte(run))
	try := func(i int, insists bool) *PortBlock {
		block := (int(sum.Sum32()%uint32(blocks)) + number + i) % blocks
		return tryBlock(LowestPort+block*roles.BlockSize, earlyPorts, listening, insists)
	}
	best, lowest := 0, math.MaxInt
	for i := range blocks {
		block := try(i, false)
		cost := block.cost()
		if cost == 0 {
			return block.endWith(background), nil
		}
		block.release()
		if cost < lowest {
			best, lowest = i, cost
		}
	}
	block := try(best, true)
	if len(block.Busy) == roles.BlockSize {
		block.release()
		holders, _ := health.FindListeners(block.First, block.First)
		return nil, fmt.Errorf("all %d blocks of %d ports between %d and %d are in use: %v", blocks,
			roles.BlockSize, LowestPort, high, holders)
	}
	return block.endWith(background), nil
}

// ClaimBlockAt claims the block that begins with a port, and keeps a number of its ports. It returns nil if
// another program has one of the ports of the block, or another daemon claims it.
func ClaimBlockAt(background func(task func(ctx context.Context)), first, count int) (*PortBlock, error) {
	listening, err := health.PortsOfListeners(first, first+roles.BlockSize-1)
	if err != nil {
		return nil, err
	}
	b := tryBlock(first, count, listening, false)
	if b.cost() > 0 {
		b.release()
		return nil, nil
	}
	return b.endWith(background), nil
}

// tryBlock claims the block that begins with a port, and keeps a number of its ports. If another
// daemon, or any user, claims it, it keeps ports only if it insists.
func tryBlock(first, count int, listening []int, insists bool) *PortBlock {
	b := newBlock()
	b.First = first
	// The claim is an abstract socket, to which nothing is sent: it exists in the network namespace of the
	// ports, and vanishes with the process.
	claim, err := net.ListenUnixgram("unixgram",
		&net.UnixAddr{Name: fmt.Sprintf("@bringupd-ports-%d", first), Net: "unixgram"})
	if err == nil {
		b.claim = claim
	}
	for port := first; port < first+roles.BlockSize; port++ {
		_, isBusy := slices.BinarySearch(listening, port)
		if !isBusy && port < first+count && (insists || b.claim != nil) {
			b.Keep(port)
			_, isKept := b.kept[port]
			isBusy = !isKept // another program has bound it
		}
		if isBusy {
			b.Busy = append(b.Busy, port)
		}
	}
	return b
}

// cost is 0 for a block that nobody else uses. A claim counts more than busy ports, and less than
// those at which ranks meet.
func (b *PortBlock) cost() int {
	cost := len(b.Busy)
	if b.claim == nil {
		cost += roles.BlockSize
	}
	for _, port := range b.Busy {
		if port >= b.First+roles.BlockSize-MeetingPorts {
			cost += 2 * roles.BlockSize
		}
	}
	return cost
}

// BusyPorts returns the ports of the block that other programs have. It returns none if b is nil.
func (b *PortBlock) BusyPorts() []int {
	if b == nil {
		return nil
	}
	return b.Busy
}
