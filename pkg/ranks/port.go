package ranks

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/process"
)

// defaultTorchPort is the default port of torch.distributed, which other jobs may use as well.
const defaultTorchPort = 29500

// HoldPort reserves a port of this node until release is called. It does not listen, so that a
// program which sets SO_REUSEADDR, such as torch's store, can listen on it meanwhile.
func HoldPort() (port int, release func(), err error) {
	for range 3 {
		socket, port, err := process.ReserveServerPort()
		if err != nil {
			return 0, nil, err
		}
		if port != defaultTorchPort {
			return port, func() { process.ReleasePort(socket) }, nil
		}
		process.ReleasePort(socket)
	}
	return 0, nil, fmt.Errorf("cannot reserve a port for the ranks: the kernel offers only %d", defaultTorchPort)
}
