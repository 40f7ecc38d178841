package preflight

import (
	"time"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/check"
)

// DoctorFacts is the state that one node has found: of itself, of the shared file system and of the
// path to the head.
type DoctorFacts struct {
	NodeIndex int    `json:"rank"`     // node index
	Host      string `json:"host"`     // host name used by the launcher
	Hostname  string `json:"hostname"` // host name used by the kernel
	addressFacts
	OwnName DNSResult `json:"own_name"` // the node's own host name
	// the head's host name; nil: not resolved
	HeadName *DNSResult       `json:"head_name,omitempty"`
	Attempts []ConnectAttempt `json:"calls,omitempty"` // connections to the head
	// ports of the services on this node
	Ports     []ServicePort     `json:"ports,omitempty"`
	PortsErr  string            `json:"no_ports,omitempty"` // reason if the ports are unknown
	Share     LogDirFacts       `json:"share"`              // log directory
	Framework *FrameworkVersion `json:"tool,omitempty"`     // nil: the framework has no program
	MPI       *DriverMPI        `json:"mpi,omitempty"`      // nil: there is no driver
	Report    *check.Report     `json:"report,omitempty"`   // report of the node's own checks
}

// addressFacts are the addresses of one node.
type addressFacts struct {
	// address for connections from peers
	Address        string   `json:"address,omitempty"`
	AddressErr     string   `json:"no_address,omitempty"` // reason if there is no address
	LocalAddresses []string `json:"locals,omitempty"`     // all addresses of the node
}

// DNSResult is a host name and the addresses to which this node's resolver resolves it.
type DNSResult struct {
	Host      string   `json:"host"`
	Addresses []string `json:"addresses,omitempty"`
	Err       string   `json:"error,omitempty"`
}

// ConnectAttempt is the result of one attempt to connect to the head.
type ConnectAttempt struct {
	To     string `json:"to"`                // host:port
	ByName bool   `json:"by_name,omitempty"` // To contains a host name instead of an address
	Err    string `json:"error,omitempty"`
}

// ServicePort is a port on which a service will listen, and the process that holds it already.
type ServicePort struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
	Fixed  bool   `json:"fixed"`            // set by configuration, not chosen among free ports
	Holder string `json:"holder,omitempty"` // process that listens on it; empty: none
}

// LogDirFacts is the state of the log directory as seen by the node.
type LogDirFacts struct {
	FileSystem string `json:"file_system,omitempty"`
	// lead of the server's clock, at least
	Offset   *time.Duration `json:"offset_ns,omitempty"`
	Space    *files.Space   `json:"space,omitempty"` // requested only by the head
	SpaceErr string         `json:"space_error,omitempty"`
}

// FrameworkVersion is the framework's program on the node.
type FrameworkVersion struct {
	Name    string   `json:"name"`
	Version string   `json:"version,omitempty"`
	Err     string   `json:"error,omitempty"`
	Missing bool     `json:"missing,omitempty"` // the program is not installed or not executable
	Lines   []string `json:"lines,omitempty"`   // last lines of its output
}
