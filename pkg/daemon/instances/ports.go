package instances

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
)

// The range from which blocks of ports are taken, if the kernel does not assign ports from it. Below
// it are the ports of well-known services.
const (
	lowestBlockPort  = 16384
	highestBlockPort = 32768
)

// earlyPorts is the number of ports that a block keeps before it is known which ones are planned: the
// first ones, because ports are planned from there on.
const earlyPorts = 64

// PortBlock is the block of ports of a node. It keeps ports for processes that have not started yet:
// their addresses are given out before, so that no other port could replace them.
type PortBlock struct {
	First int

	mu   sync.Mutex
	kept map[int]int // sockets, by port; guarded by mu
}

// KeepOnly keeps these ports, as far as they are free, and releases all others. It does nothing if b
// is nil.
func (b *PortBlock) KeepOnly(ports ...int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for port := range b.kept {
		if !slices.Contains(ports, port) {
			b.close(port)
		}
	}
	for _, port := range ports {
		if _, isKept := b.kept[port]; isKept {
			continue
		}
		if socket, err := bindPort(port); err == nil {
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
	socket, isKept := b.kept[port]
	if !isKept {
		return
	}
	// A process that is just being started has a copy of the socket until it executes its program.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	_ = unix.Close(socket)
	delete(b.kept, port)
}

// bindPort binds a socket to a port of all addresses of this machine. The socket does not listen. It
// shares the port with no other socket, whatever options that has, so that no process can listen
// there until it is closed.
func bindPort(port int) (socket int, err error) {
	for _, address := range []unix.Sockaddr{&unix.SockaddrInet6{Port: port}, &unix.SockaddrInet4{Port: port}} {
		family := unix.AF_INET
		if _, is := address.(*unix.SockaddrInet6); is {
			family = unix.AF_INET6
		}
		if socket, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			continue // a machine without IPv6
		}
		if family == unix.AF_INET6 {
			err = unix.SetsockoptInt(socket, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
		}
		if err == nil {
			err = unix.Bind(socket, address)
		}
		if err == nil {
			return socket, nil
		}
		_ = unix.Close(socket)
	}
	return 0, err
}

// portsOf returns the ports of a process that the file does not fix.
func portsOf(role *roles.RolePlan, p roles.Process) (ports []int) {
	for at, request := range role.Program.Ports {
		for i := range max(1, request.Count) {
			if request.Number == 0 {
				ports = append(ports, p.Ports[at]+i)
			}
		}
	}
	return ports
}

// ClaimPortBlock returns a block of [roles.BlockSize] ports on which no process of
// the node listens, outside of the range from which the kernel assigns ports. No other daemon of the
// host claims the same block until the end of the context that background has. Daemons with
// different numbers, or of other runs, prefer different blocks.
func ClaimPortBlock(background func(task func(ctx context.Context)), run string, number int) (*PortBlock, error) {
	high := highestBlockPort
	if ephemeral := health.EphemeralPorts("/"); ephemeral[0] > 0 {
		high = min(high, ephemeral[0])
	}
	blocks := (high - lowestBlockPort) / roles.BlockSize
	if blocks <= 0 {
		return nil, fmt.Errorf("the kernel assigns ports from %d: set net.ipv4.ip_local_port_range to begin at 32768", high)
	}
	sum := fnv.New32a()
	sum.Write([]byte(run))
	// A block of which a port cannot be kept comes last: another program has bound it, or connections of
	// an ended one linger.
	for i := range 2 * blocks {
		first := lowestBlockPort + int(uint32(int(sum.Sum32()%uint32(blocks))+number+i)%uint32(blocks))*roles.BlockSize
		claim, err := claimBlock(first)
		if err != nil {
			continue // another daemon has it, also if its processes do not listen yet
		}
		taken, err := health.FindListeners(first, first+roles.BlockSize-1)
		if err == nil && len(taken) == 0 {
			block := &PortBlock{First: first, kept: make(map[int]int)}
			var early []int
			for port := first; port < first+earlyPorts; port++ {
				early = append(early, port)
			}
			block.KeepOnly(early...)
			if len(block.kept) < len(early) && i < blocks {
				block.KeepOnly()
				_ = claim.Close()
				continue
			}
			background(func(ctx context.Context) {
				<-ctx.Done()
				block.KeepOnly()
				_ = claim.Close()
			})
			return block, nil
		}
		_ = claim.Close()
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("each of %d blocks of %d ports between %d and %d is claimed by another daemon, or some process listens in it", blocks, roles.BlockSize, lowestBlockPort, high)
}

// claimBlock claims a block of ports for this process. The claim is an abstract socket, to which
// nothing is sent: it exists in the network namespace of the ports, and vanishes with the process.
func claimBlock(first int) (io.Closer, error) {
	return net.ListenUnixgram("unixgram", &net.UnixAddr{Name: fmt.Sprintf("@bringupd-ports-%d", first), Net: "unixgram"})
}
