package ncclras

import (
	"fmt"

	"github.com/bringupd/bringupd/pkg/process"
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
	address string
	socket  int
}

// ReservePort reserves a free port until Close, at which processes of this user can listen as NCCL's
// do, and no others.
func ReservePort() (*Reservation, error) {
	socket, port, err := process.ReserveSharedPort()
	if err == nil && port == defaultPort {
		process.ReleasePort(socket)
		err = fmt.Errorf("the kernel has assigned port %d", port)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot reserve a port for NCCL: %w", err)
	}
	return &Reservation{fmt.Sprintf("127.0.0.1:%d", port), socket}, nil
}

// Address returns the value of AddressVariable, or an empty string if r is nil.
func (r *Reservation) Address() string {
	if r == nil {
		return ""
	}
	return r.address
}

// Close ends the reservation. It does nothing if r is nil.
func (r *Reservation) Close() {
	if r != nil {
		process.ReleasePort(r.socket)
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
