// Package cards is a node's GPUs as its daemon has them: where they sit, which
// its programs are told, and what befalls them, which the head writes down for
// all nodes.
package cards

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/files"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/history"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// GPUs are those of this node.
type GPUs interface {
	// Watch tells what befalls them until ctx ends. It calls ready once, when
	// nothing will be missed any more, with the number of GPUs that it watches;
	// where that is none, it returns. Its error says why nothing is watched any
	// more.
	Watch(ctx context.Context, ready func(gpus int), event func(gpu.Judged)) error
	// Topology is where they sit, as the checks have seen them.
	Topology() gpu.Topology
	// Devices are they and the network cards, with what was counted of them
	// while they were watched, and the addresses of all GPUs on the bus. There
	// are none where the checks have seen no GPU.
	Devices() (devices []history.Device, slots []string)
}

// Past is what earlier runs have left on this node, and what this one leaves.
type Past interface {
	Recall(ctx context.Context, most int) ([][]byte, error)
	Keep(ctx context.Context, data []byte) error
}

// Config is what a node's cards need of its daemon.
type Config struct {
	GPUs       GPUs                   // nil: nothing is watched
	Name       string                 // of the node, in messages
	Rank, Size int                    // of the node in the job, and of that
	Private    func() (string, error) // returns the daemon's private directory
	Life       context.Context
	Background func(task func(ctx context.Context)) // runs a task that the daemon waits for
	End        func(cause error)                    // ends the run
	Header     func() signal.Header
	Publish    func(name string, record *signal.EventRecord) // among the nodes' records
	Past       func() Past                                   // asked once there is a run directory
	Trail      *trail.Trail
	Log        *zap.Logger
}

// Cards are a node's GPUs.
type Cards struct {
	cfg      Config
	topology atomic.Pointer[learned] // nil until it is known where they sit
	// Witness is told of what befalls this node; nil where it is not the head.
	Witness func(signal.EventRecord)

	mu     sync.Mutex
	memory      // guarded by mu
	events int  // how many have befallen this node, besides UnfitEvent; guarded by mu
	unfit  bool // UnfitEvent has befallen it; guarded by mu
}

// New returns the cards of a node, of which nothing is known yet.
func New(cfg Config) *Cards { return &Cards{cfg: cfg} }

// learned is what this node knows of where its GPUs sit.
type learned struct {
	topology gpu.Topology
	file     string // with the topology; empty: there is none
}

// topologyTime is how long programs' file of it may take: a node is better off
// without it than with a gate that does not open.
const topologyTime = 10 * time.Second

// learn takes note of where this node's GPUs sit, for what is started from now
// on. What it learns later replaces what was known; it is called by one
// goroutine at a time.
func (c *Cards) learn(t gpu.Topology) {
	ctx, cancel := context.WithTimeoutCause(c.cfg.Life, topologyTime, health.ErrDeadline)
	defer cancel()
	file, err := service.Answered(ctx, func() (string, error) { return c.keepTopology(t) })
	if err != nil {
		c.cfg.Log.Warn("cannot keep the topology for the node's programs", zap.Error(err))
	}
	c.topology.Store(&learned{topology: t, file: file})
}

// keepTopology writes the file for programs into the private directory. A
// program never sees half of it.
func (c *Cards) keepTopology(t gpu.Topology) (file string, err error) {
	dir, err := c.cfg.Private()
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "topology.json")
	if err := files.Replace(file, append(text, '\n'), 0o600); err != nil {
		return "", err
	}
	return file, nil
}

// Topology is where this node's GPUs sit; without GPUs as long as nothing is known.
func (c *Cards) Topology() gpu.Topology {
	if known := c.topology.Load(); known != nil {
		return known.topology
	}
	return gpu.Topology{}
}

// Env is what children are told of it. As long as nothing is known the
// variables are empty: another daemon's around ours may be of other GPUs.
func (c *Cards) Env() map[string]string {
	known := c.topology.Load()
	if known == nil {
		known = new(learned)
	}
	env := known.topology.Env()
	env[gpu.TopologyFile] = known.file
	return env
}

// NVLinkDomain is the UUID of the NVLink fabric that this node's GPUs share with
// other nodes'; empty: none that is known.
func (c *Cards) NVLinkDomain() string {
	if known := c.topology.Load(); known != nil && known.topology.Domain != nil {
		return known.topology.Domain.Cluster
	}
	return ""
}
