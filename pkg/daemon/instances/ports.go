package instances

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
)

// The range from which blocks of ports are taken, if the kernel does not assign ports from it. Below
// it are the ports of well-known services.
const (
	lowestBlockPort  = 16384
	highestBlockPort = 32768
)

// ClaimPortBlock returns the first port of a block of [roles.BlockSize] ports on which no process of
// the node listens, outside of the range from which the kernel assigns ports. No other daemon of the
// host claims the same block until the end of the context that background has. Daemons with
// different numbers, or of other runs, prefer different blocks.
func ClaimPortBlock(background func(task func(ctx context.Context)), run string, number int) (int, error) {
	high := highestBlockPort
	if ephemeral := health.EphemeralPorts("/"); ephemeral[0] > 0 {
		high = min(high, ephemeral[0])
	}
	blocks := (high - lowestBlockPort) / roles.BlockSize
	if blocks <= 0 {
		return 0, fmt.Errorf("the kernel assigns ports from %d: set net.ipv4.ip_local_port_range to begin at 32768", high)
	}
	sum := fnv.New32a()
	sum.Write([]byte(run))
	for i := range blocks {
		first := lowestBlockPort + int(uint32(int(sum.Sum32()%uint32(blocks))+number+i)%uint32(blocks))*roles.BlockSize
		claim, err := claimBlock(first)
		if err != nil {
			continue // another daemon has it, also if its processes do not listen yet
		}
		taken, err := health.FindListeners(first, first+roles.BlockSize-1)
		if err == nil && len(taken) == 0 {
			background(func(ctx context.Context) {
				<-ctx.Done()
				_ = claim.Close()
			})
			return first, nil
		}
		_ = claim.Close()
		if err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("each of %d blocks of %d ports between %d and %d is claimed by another daemon, or some process listens in it", blocks, roles.BlockSize, lowestBlockPort, high)
}

// claimBlock claims a block of ports for this process. The claim is an abstract socket, to which
// nothing is sent: it exists in the network namespace of the ports, and vanishes with the process.
func claimBlock(first int) (io.Closer, error) {
	return net.ListenUnixgram("unixgram", &net.UnixAddr{Name: fmt.Sprintf("@bringupd-ports-%d", first), Net: "unixgram"})
}
