package ncclras

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	// AddressVariable is the variable of NCCL for the address of its RAS subsystem.
	AddressVariable = "NCCL_RAS_ADDR"
	// ReservedVariable has the address that the daemon has reserved. It differs from that in
	// AddressVariable if the user has set that one.
	ReservedVariable = "BRINGUPD_NCCL_RAS_ADDR"
	// defaultPort is the port of processes without an address of their own, and so of any job.
	defaultPort = 28028
)

// Reservation keeps a port of this machine for the RAS subsystem of the node's processes.
type Reservation struct {
	address netip.AddrPort
	socket  int
}

// ReservePort reserves a free port until Close. The socket is bound, but does not listen, and permits
// other sockets of the same user at the port (SO_REUSEPORT), as NCCL's have it. So processes of this
// user can listen there, and the kernel refuses the port to other users for the whole time.
func ReservePort() (*Reservation, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot reserve a port for NCCL: %w", err)
	}
	// Without SO_REUSEADDR, so that a socket of another user that has it cannot be bound either.
	err = unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err == nil {
		err = unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var bound unix.Sockaddr
	if err == nil {
		bound, err = unix.Getsockname(socket)
	}
	v4, is := bound.(*unix.SockaddrInet4)
	if err == nil && (!is || v4.Port == defaultPort) {
		err = fmt.Errorf("the kernel has assigned %v", bound)
	}
	if err != nil {
		_ = unix.Close(socket)
		return nil, fmt.Errorf("cannot reserve a port for NCCL: %w", err)
	}
	return &Reservation{netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), uint16(v4.Port)), socket}, nil
}

// Address returns the value of AddressVariable, or an empty string if r is nil.
func (r *Reservation) Address() string {
	if r == nil {
		return ""
	}
	return r.address.String()
}

// Close ends the reservation. It does nothing if r is nil.
func (r *Reservation) Close() {
	if r != nil {
		_ = unix.Close(r.socket)
	}
}

// Variables returns the variables for the node's children, of which base may have some: the reserved
// address, and the same for NCCL unless the user has set another one. An address that a daemon around
// this one has reserved is replaced, because the processes of this run are another job.
func Variables(reserved string, base func(name string) (string, bool)) map[string]string {
	variables := map[string]string{ReservedVariable: reserved}
	outer, _ := base(ReservedVariable)
	if own, isSet := base(AddressVariable); !isSet || own == outer {
		variables[AddressVariable] = reserved
	}
	return variables
}
