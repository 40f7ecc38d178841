// Package framework tells what the head and the workers run, and what "up" means:
// for commands of the user's own, and by its interfaces for every framework that
// has a package below this one. A framework describes services; the daemon starts,
// proves and watches them.
package framework

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// Node is what a framework may know of the node that it describes a service for.
type Node struct {
	Attempt string // the run directory's name: unique, and safe in a name
	// Rank and Size are those of the team: the nodes that the driver gets. The
	// head is always rank 0; where there are spares its own service is
	// described before the team is known, and Size is 0.
	Rank int
	Size int
	// LaunchRank is the rank in the launch, which never changes: the node's
	// name in the attempt. It is the same as Rank where there are no spares.
	LaunchRank int
	Host       string
	Address    string // where peers reach this node
	TempDir    string // private to this attempt and node, on a node-local disk
	CPUs       int    // what the node should offer; 0: let the framework see
	GPUs       int    // likewise; -1: let the framework see
	Memory     int64  // in bytes, what it may use at most; 0: all that the framework sees
	// NVLinkDomain is the UUID of the NVLink fabric that the node's GPUs share with
	// other nodes'; empty: none.
	NVLinkDomain string
	Shared       bool // other daemons of this job run on the same host
	Environ      []string
}

// Port is a port that a service will listen on.
type Port struct {
	Name   string // the service's own word for it
	Number int
	Last   int // where it is a range of ports, the last of them; 0: it is one
}

// Service is what a node runs for the framework.
type Service struct {
	Name string // "worker": in messages and, with dashes for blanks, in the log's name
	Argv []string
	Env  []string // whole
	// Warm returns a command that can be started before Argv is known, with the same
	// Env. It waits for Order, a line on its standard input, and then does what Argv
	// does. It is nil, or returns nil, where there is none.
	Warm  func() []string
	Order []byte
	// Ports must be free before the start. Until the service is up, no stranger may take one that
	// is not of a range.
	Ports []Port
	// Ready takes one look and returns nil when the service is up.
	Ready func(ctx context.Context) error
	// Pace is the longest pause between two looks; 0: half a second.
	Pace time.Duration
	// Port is the local port on which Ready finds the service, 0 where it asks
	// none: whoever answers there must be of the service's own family.
	Port int
	// Transient tells whether a start that ended so is worth another try.
	Transient func(exit process.Exit, lines []string) bool
	// Death is how the end of the service is seen and explained.
	Death Death
	// Evidence are the service's own logs.
	Evidence Evidence
	// Attempts bounds the starts; at least one is made.
	Attempts int
	// Expendable says that nothing is lost where it is killed at the end, without a grace.
	Expendable bool
}

// Death is how the end of a service is seen and explained.
type Death struct {
	// Vital are the names, as ps has them, of processes of the service without which it is dead, even
	// if its own process does not know that yet.
	Vital []string
	// Explain returns what the service's own files say of its death. It is nil if its output says all.
	Explain func() []string
	// Stops reports whether a program with this command line ends the service on purpose. It is nil if
	// there is no such program.
	Stops func(argv []string) bool
}

// Evidence are logs that a service writes on its node's own disk. They are kept where the run fails by this node.
type Evidence struct {
	Dir    string        // they are in; empty: there are none
	Always bool          // they are kept at the end of every run
	Every  time.Duration // and while it runs, at such intervals; 0: not before the end
}

// Endpoint is what the head tells workers and the driver of its service.
type Endpoint struct {
	Address string
	Env     map[string]string
	// Dashboard is the URL of the service's pages on the head's node, for people; empty
	// where there are none, or only the service knows where.
	Dashboard string
}

// Member is a node that the framework should count, by its rank in the launch.
type Member struct {
	Rank int
	Host string
}

// Framework describes what a job's nodes run. Head and Worker return nil where
// the node runs no such service.
type Framework interface {
	Name() string
	// Serves tells whether any node runs a service at all.
	Serves() bool
	Head(Node) (*Service, Endpoint, error)
	Worker(Node, Endpoint) (*Service, error)
}

// Counter is a framework that knows its own nodes.
type Counter interface {
	// Fleet takes one look from the head and returns nil when the framework
	// itself counts every member; otherwise the error names who is missing.
	Fleet(ctx context.Context, head Node, endpoint Endpoint, members []Member) error
}

// Guarded is a framework that can keep those out of its cluster who do not know a secret of the run.
type Guarded interface {
	// Credentials returns what lets the programs of a node in; nothing where nobody is kept out. secret is 32 bytes
	// that the run's daemons alone know, the same on each node.
	Credentials(node Node, secret []byte) (Credentials, error)
	// Strangers looks from the head, whose service is up, whether anybody who reaches the cluster is
	// let in although nobody has asked for that, and tells people so.
	Strangers(ctx context.Context, head Node, endpoint Endpoint, tell func(sentence string))
}

// Credentials let the programs of a node into its framework's cluster.
type Credentials struct {
	// Files are there before anything of the framework's starts, by their names in the node's TempDir, for the
	// user alone.
	Files map[string][]byte
	// Env is how all that is the job's on the node finds them: services, the driver or ranks, commands from outside.
	Env map[string]string
}

// Traits are what else is so of a framework, and what people are told of it in its
// own words. What it has none of is zero.
type Traits struct {
	// Unranked says that its workers are told neither their rank nor the number of
	// nodes: where another node takes a place, they may go on.
	Unranked bool
	// VersionCommand is the command by which its program tells its version, and
	// Version finds it among the lines that the command has said; empty where there
	// is none.
	VersionCommand []string
	Version        func(lines []string) string
	// ObjectStore is how many bytes each node is told to keep in /dev/shm; 0 where
	// it takes what there is, or keeps nothing there.
	ObjectStore int64
	// Tasks is how many processes and threads its services need on a node; 0: a few.
	Tasks uint64

	Program  string // the flag that names its program
	FreePort string // how it takes a port that is free, to follow "give another port; "
	Logs     string // whose own logs a service of it leaves as Evidence
}

// Special is a framework with traits.
type Special interface{ Traits() Traits }

// TraitsOf returns a framework's traits; the zero Traits where it has none.
func TraitsOf(f Framework) Traits {
	if special, ok := f.(Special); ok {
		return special.Traits()
	}
	return Traits{}
}
