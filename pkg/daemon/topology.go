package daemon

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
)

// cards are this node's GPUs: where they sit, and what befalls them.
type cards struct {
	*node
	topology atomic.Pointer[learned] // nil until it is known where they sit
	// witness is told of what befalls this node; nil where it is not the head.
	witness func(signal.EventRecord)

	mu     sync.Mutex
	events int // how many have befallen this node; guarded by mu
}

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
func (c *cards) learn(t gpu.Topology) {
	ctx, cancel := context.WithTimeoutCause(c.life, topologyTime, errDeadline)
	defer cancel()
	file, err := service.Answered(ctx, func() (string, error) { return c.keepTopology(t) })
	if err != nil {
		c.log.Warn("cannot keep the topology for the node's programs", zap.Error(err))
	}
	c.topology.Store(&learned{topology: t, file: file})
}

// keepTopology writes the file for programs into the private directory. A
// program never sees half of it.
func (c *cards) keepTopology(t gpu.Topology) (file string, err error) {
	dir, err := c.private.Dir()
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "topology.json")
	unfinished := filepath.Join(dir, ".topology.json")
	if err := os.WriteFile(unfinished, append(text, '\n'), 0o600); err != nil {
		return "", err
	}
	if err := os.Rename(unfinished, file); err != nil {
		return "", err
	}
	return file, nil
}

// topologyEnv is what children are told of it. As long as nothing is known the
// variables are empty: another daemon's around ours may be of other GPUs.
func (c *cards) topologyEnv() map[string]string {
	known := c.topology.Load()
	if known == nil {
		known = new(learned)
	}
	env := known.topology.Env()
	env[gpu.TopologyFile] = known.file
	return env
}

// nvlinkDomain is the UUID of the NVLink fabric that this node's GPUs share with
// other nodes'; empty: none that is known.
func (c *cards) nvlinkDomain() string {
	if known := c.topology.Load(); known != nil && known.topology.Domain != nil {
		return known.topology.Domain.Cluster
	}
	return ""
}
