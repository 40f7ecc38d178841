// Package framework describes the services of the head and the workers, and when they are up: for
// the user's own commands, and by interfaces for the frameworks in packages below this one. A
// framework only describes services; the daemon starts, verifies and supervises them.
package framework

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// Node has the properties of the node for which a framework describes a service.
type Node struct {
	RunName string // the run directory's name: unique, and safe as a name
	// TeamIndex and Size refer to the team, the nodes that the driver gets. The head is always 0. With
	// spares, its own service is described before the team is known, and Size is 0.
	TeamIndex int
	Size      int
	// LaunchIndex is the node's index in the launch, which never changes and gives the node its name
	// in the attempt. It equals TeamIndex if there are no spares.
	LaunchIndex int
	Host        string
	Address     string // at which peers reach this node
	TempDir     string // private to this attempt and node, on a local disk
	CPUs        int    // CPUs to offer; 0: the framework decides
	GPUs        int    // the same for GPUs; -1: the framework decides
	MaxMemory   int64  // maximum memory in bytes; 0: all that the framework sees
	// NVLinkDomain is the UUID of the NVLink fabric that the node's GPUs share with other nodes. It is
	// empty if there is none.
	NVLinkDomain string
	Environ      []string
}

// Port is a port on which a service will listen.
type Port struct {
	Name       string // the service's own name for it
	Number     int
	LastNumber int // the last port of a range; 0: a single port
}

// Service is a service of a framework on a node.
type Service struct {
	// for example "worker": used in messages and, with dashes for spaces, in the log's name
	Name string
	Argv []string
	Env  []string // the complete environment
	// WarmCommand returns a command that can be started before Argv is known, with the same Env. It
	// waits for WarmInput, a line on its standard input, and then does the same as Argv. It is nil, or
	// returns nil, if there is no such command.
	WarmCommand func() []string
	WarmInput   []byte
	// Ports must be free before the start. Until the service is up, no other user may take one of
	// them, except of a range.
	Ports []Port
	// CheckReady checks once, and returns nil if the service is up.
	CheckReady func(ctx context.Context) error
	// MaxCheckInterval is the maximum interval between two checks; 0 means half a second.
	MaxCheckInterval time.Duration
	// ReadyPort is the local port on which CheckReady finds the service, or 0 if it uses none. The
	// listener there must be a process of the service.
	ReadyPort int
	// IsTransient reports whether a failed start should be tried again.
	IsTransient func(exit process.Exit, lines []string) bool
	// ExitDetection describes how the end of the service is detected and explained.
	ExitDetection ExitDetection
	// OwnLogs describes the service's own logs.
	OwnLogs ServiceLogs
	// MaxStarts is the maximum number of starts; at least one is made.
	MaxStarts int
	// NeedsNoGrace reports that the service can be killed at the end without a grace period.
	NeedsNoGrace bool
}

// ExitDetection describes how the end of a service is detected and explained.
type ExitDetection struct {
	// VitalProcesses are the names, as shown by ps, of processes of the service without which it
	// counts as dead, even if its main process still runs.
	VitalProcesses []string
	// ExplainExit returns lines of the service's own files about its death. It is nil if its output is
	// sufficient.
	ExplainExit func() []string
	// IsStopCommand reports whether a program with this command line ends the service on purpose. It
	// is nil if there is no such program.
	IsStopCommand func(argv []string) bool
	// IsNoise reports whether a line of the service's output says nothing about its death. It is nil
	// if all lines may.
	IsNoise func(line string) bool
}

// ServiceLogs describes logs that a service writes to its node's local disk. They are kept if the
// run fails because of this node.
type ServiceLogs struct {
	Dir        string // their directory; empty: there are none
	KeepAlways bool   // keep them at the end of every run
}

// Endpoint is the head's information about its service for workers and the driver.
type Endpoint struct {
	Address string
	Env     map[string]string
	// Dashboard is the URL of the service's dashboard on the head's node. It is empty if there is
	// none, or if only the service knows it.
	Dashboard string
}

// Member is a node that the framework should list, with its index in the launch.
type Member struct {
	NodeIndex int
	Host      string
}

// Framework describes the services of a job's nodes. Head and WorkerService return nil if the node
// runs no such service.
type Framework interface {
	Name() string
	// HasServices reports whether any node runs a service.
	HasServices() bool
	HeadService(Node) (*Service, Endpoint, error)
	WorkerService(Node, Endpoint) (*Service, error)
}

// MemberLister is a framework that lists its own nodes.
type MemberLister interface {
	// CheckMembers checks once, from the head, and returns nil if the framework itself lists every
	// member. Otherwise the error names the missing ones.
	CheckMembers(ctx context.Context, head Node, endpoint Endpoint, members []Member) error
}

// ClusterBuilder is a framework of which a job can have several clusters.
type ClusterBuilder interface {
	// WithHeadPort returns the framework with this port of the head's service, so that all nodes know
	// its address before it starts.
	WithHeadPort(port int) Framework
}

// Authenticator is a framework that can reject clients without a secret of the run.
type Authenticator interface {
	// NodeCredentials returns the credentials for the programs of a node, or nothing if access is
	// open. secret is 32 bytes that only the run's daemons know, the same on each node.
	NodeCredentials(node Node, secret []byte) (Credentials, error)
	// WarnIfOpen checks from the head, once its service is up, whether the cluster accepts clients
	// without credentials although it should not, and reports that by tell.
	WarnIfOpen(ctx context.Context, head Node, endpoint Endpoint, tell func(sentence string))
}

// Credentials give the programs of a node access to its framework's cluster.
type Credentials struct {
	// Files are created before anything of the framework starts, by their names in the node's TempDir,
	// readable only by the user.
	Files map[string][]byte
	// Env has the variables by which all processes of the job on the node find them: services, the
	// driver or ranks, and commands from outside.
	Env map[string]string
}

// Traits are further properties of a framework, and its terms for messages. Entries that it does
// not have are zero.
type Traits struct {
	// ReplaceableNodes reports that its workers know neither their index nor the number of nodes, so
	// they can continue if another node takes a place.
	ReplaceableNodes bool
	// VersionCommand is the command that prints its program's version, and ParseVersion finds it in
	// the output. They are empty if there is none.
	VersionCommand []string
	ParseVersion   func(lines []string) string
	// ObjectStoreBytes is the number of bytes that each node keeps in /dev/shm. It is 0 if it uses the
	// available space, or nothing.
	ObjectStoreBytes int64
	// MaxTempDir is the maximum length of a node's TempDir in bytes, because of sockets in it; 0 means
	// any.
	MaxTempDir int
	// MinTasks is the number of processes and threads that its services need on a node; 0 means a few.
	MinTasks uint64

	// HeadName and WorkerName are the names of its services: see [Service]. They are empty if no node
	// has such a service. NoWorkerOnHead reports that the head's node has no service of a worker.
	HeadName, WorkerName string
	NoWorkerOnHead       bool
	// OwnProcess is the name of a process of a cluster that a driver has started itself; empty if
	// there is none.
	OwnProcess string

	HeadPort       int    // port of the head's service; 0: a free one
	FreePortAdvice string // how it picks a free port, after "give another port; "
	LogsProgram    string // the program whose own logs a service leaves as ServiceLogs
	// AdviseDriver returns what to do about a failed driver with these last lines, or an empty string.
	// It is nil if the framework has no such advice.
	AdviseDriver func(lines []string) string
}

// WithTraits is a framework with traits.
type WithTraits interface{ Traits() Traits }

// TraitsOf returns a framework's traits, or the zero Traits if it has none.
func TraitsOf(f Framework) Traits {
	if special, ok := f.(WithTraits); ok {
		return special.Traits()
	}
	return Traits{}
}
