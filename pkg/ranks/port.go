package ranks

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// defaultTorchPort is the default port of torch.distributed, which other jobs may use as well.
const defaultTorchPort = 29500

// HoldPort reserves a port of this node until release is called. It binds the port but does not
// listen, so that a program which sets SO_REUSEADDR, such as torch's store and most servers, can
// listen on it meanwhile.
func HoldPort() (port int, release func(), err error) {
	for range 3 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return 0, nil, fmt.Errorf("cannot reserve a port for the ranks: %v", err)
		}
		release := func() { _ = unix.Close(fd) }
		if port, err = bindAnyPort(fd); err == nil && port != defaultTorchPort {
			return port, release, nil
		}
		release()
		if err != nil {
			return 0, nil, fmt.Errorf("cannot reserve a port for the ranks: %v", err)
		}
	}
	return 0, nil, fmt.Errorf("cannot reserve a port for the ranks: the kernel offers only %d", defaultTorchPort)
}

// bindAnyPort binds a socket to a port that the kernel selects, and returns the port.
func bindAnyPort(fd int) (port int, err error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{}); err != nil {
		return 0, err
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return at.(*unix.SockaddrInet4).Port, nil
}
