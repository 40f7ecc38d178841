package instances

import (
	"fmt"
	"hash/fnv"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
)

// The range from which blocks of ports are taken, if the kernel does not assign ports from it. Below
// it are the ports of well-known services.
const (
	lowestBlockPort  = 16384
	highestBlockPort = 32768
)

// FindPortBlock returns the first port of a block of [roles.BlockSize] ports on which no process of
// the node listens, outside of the range from which the kernel assigns ports. Daemons of one host
// with different numbers find different blocks.
func FindPortBlock(run string, number int) (int, error) {
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
		taken, err := health.FindListeners(first, first+roles.BlockSize-1)
		if err != nil {
			return 0, err
		}
		if len(taken) == 0 {
			return first, nil
		}
	}
	return 0, fmt.Errorf("some process listens in each of %d blocks of %d ports between %d and %d", blocks, roles.BlockSize, lowestBlockPort, high)
}
