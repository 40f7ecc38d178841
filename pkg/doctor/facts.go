package doctor

import (
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Facts are what one node has seen: of itself, of the share and of the head.
type Facts struct {
	Rank      int           `json:"rank"`
	Host      string        `json:"host"`                 // as the launcher has it
	Hostname  string        `json:"hostname"`             // as the kernel has it
	Address   string        `json:"address,omitempty"`    // where peers would reach it
	NoAddress string        `json:"no_address,omitempty"` // why it has none
	Locals    []string      `json:"locals,omitempty"`     // all addresses of the node
	OwnName   Name          `json:"own_name"`
	HeadName  *Name         `json:"head_name,omitempty"` // nil: not asked
	Calls     []Call        `json:"calls,omitempty"`     // to the head
	Ports     []Port        `json:"ports,omitempty"`     // that its service is to have
	NoPorts   string        `json:"no_ports,omitempty"`  // why they can't be told
	Ephemeral [2]int        `json:"ephemeral_ports"`     // the range that the kernel gives ports from; 0: not known
	Share     Share         `json:"share"`
	Tool      *Tool         `json:"tool,omitempty"` // nil: the framework has none
	MPI       *MPI          `json:"mpi,omitempty"`  // nil: no driver was given
	Left      Left          `json:"left"`
	Report    *check.Report `json:"report,omitempty"` // of the node's own checks
}

// Name is a host's name, and what the node's resolver says of it.
type Name struct {
	Host      string   `json:"host"`
	Addresses []string `json:"addresses,omitempty"`
	Err       string   `json:"error,omitempty"`
}

// Call is one connection to the head that was tried.
type Call struct {
	To     string        `json:"to"` // host:port
	ByName bool          `json:"by_name,omitempty"`
	Took   time.Duration `json:"took_ns"`
	Err    string        `json:"error,omitempty"`
	// Ahead is by how much the node's clock is ahead of the head's, at least; nil: not told.
	Ahead *time.Duration `json:"ahead_ns,omitempty"`
}

// Port is one that a service listens on, and who has it already.
type Port struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
	Fixed  bool   `json:"fixed"` // not one that was just found free
	Holder string `json:"holder,omitempty"`
}

// Share is the log directory as the node sees it.
type Share struct {
	FileSystem string         `json:"file_system,omitempty"`
	Record     time.Duration  `json:"record_ns,omitempty"` // to publish one
	Trial      *signal.Trial  `json:"trial,omitempty"`
	TrialErr   string         `json:"trial_error,omitempty"`
	Offset     *time.Duration `json:"offset_ns,omitempty"` // by how much its clock is ahead of the node's, at least
	Heard      *bool          `json:"heard,omitempty"`     // the kernel has told of what the head wrote; nil: not tried
	Space      *signal.Space  `json:"space,omitempty"`     // asked by the head alone
	SpaceErr   string         `json:"space_error,omitempty"`
}

// Tool is the framework's program on the node.
type Tool struct {
	Name    string   `json:"name"`
	Version string   `json:"version,omitempty"`
	Err     string   `json:"error,omitempty"`
	Missing bool     `json:"missing,omitempty"`
	Lines   []string `json:"lines,omitempty"` // its last ones
}

// Left is what earlier runs have left.
type Left struct {
	Runs      []signal.Endless `json:"runs,omitempty"` // looked for by the head alone
	RunsErr   string           `json:"runs_error,omitempty"`
	Processes []Process        `json:"processes,omitempty"`
	Shm       []File           `json:"shm,omitempty"`
	Temp      []string         `json:"temp,omitempty"`
}

// Process is one that outlived its daemon.
type Process struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
	Run     string `json:"run,omitempty"` // that it was of
}

// File is one and how large it is.
type File struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}
