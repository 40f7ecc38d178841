package process

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReservePort binds a socket to a port of all addresses, or to a free one if port is 0. It does not
// listen, and shares the port with no other socket, so that no process can listen there until
// [ReleasePort]. It returns the port.
func ReservePort(port int) (socket, bound int, err error) {
	for _, address := range []unix.Sockaddr{&unix.SockaddrInet6{Port: port}, &unix.SockaddrInet4{Port: port}} {
		if socket, bound, err = bindSocket(address, bindAlone); err == nil {
			return socket, bound, nil
		}
	}
	return 0, 0, fmt.Errorf("cannot reserve a port: %w", err)
}

// ReserveSharedPort reserves a free port of the loopback address at which processes of this user can
// listen if their sockets permit others (SO_REUSEPORT). The kernel refuses it to other users.
func ReserveSharedPort() (socket, bound int, err error) {
	// Without SO_REUSEADDR, so that a socket of another user that has it cannot be bound either.
	return reserveWith(unix.SO_REUSEPORT, [4]byte{127, 0, 0, 1})
}

// ReserveServerPort reserves a free port at which a program that sets SO_REUSEADDR, as most servers
// do, can listen meanwhile.
func ReserveServerPort() (socket, bound int, err error) {
	return reserveWith(unix.SO_REUSEADDR, [4]byte{})
}

// reserveWith reserves a free port of an address by a socket with an option that permits others.
func reserveWith(option int, address [4]byte) (socket, bound int, err error) {
	bind := func(socket int, address unix.Sockaddr) error {
		if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, option, 1); err != nil {
			return err
		}
		return unix.Bind(socket, address)
	}
	if socket, bound, err = bindSocket(&unix.SockaddrInet4{Addr: address}, bind); err != nil {
		err = fmt.Errorf("cannot reserve a port: %w", err)
	}
	return socket, bound, err
}

// ReleasePort ends a reservation.
func ReleasePort(socket int) {
	// A process that is just being started has a copy of the socket until it executes its program.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	_ = unix.Close(socket)
}

// FindFreePorts returns n different ports on which no process listens at the moment.
func FindFreePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		socket, port, err := ReservePort(0)
		if err != nil {
			return nil, err
		}
		defer ReleasePort(socket) // all stay until the last is found, so that they differ
		ports[i] = port
	}
	return ports, nil
}

// bindSocket makes a socket, binds it to an address, and returns its port.
func bindSocket(address unix.Sockaddr, bind func(int, unix.Sockaddr) error) (socket, port int, err error) {
	family := unix.AF_INET
	if _, is := address.(*unix.SockaddrInet6); is {
		family = unix.AF_INET6
	}
	if socket, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return 0, 0, err // for example on a machine without IPv6
	}
	if family == unix.AF_INET6 {
		err = unix.SetsockoptInt(socket, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	if err == nil {
		err = bind(socket, address)
	}
	var bound unix.Sockaddr
	if err == nil {
		bound, err = unix.Getsockname(socket)
	}
	switch at := bound.(type) {
	case *unix.SockaddrInet4:
		return socket, at.Port, nil
	case *unix.SockaddrInet6:
		return socket, at.Port, nil
	}
	_ = unix.Close(socket)
	return 0, 0, err
}

// bindAlone binds a socket, also if connections of a process that has ended linger at its port.
// That needs SO_REUSEADDR, with which others could share the port: the kernel stops to grant that
// when the socket begins to listen, and refuses it without the option.
func bindAlone(socket int, address unix.Sockaddr) error {
	if err := unix.Bind(socket, address); !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	for _, step := range []func() error{
		func() error { return unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) },
		func() error { return unix.Bind(socket, address) },
		func() error { return unix.Listen(socket, 0) },
		func() error { return unix.Shutdown(socket, unix.SHUT_RD) },
		func() error { return unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 0) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
