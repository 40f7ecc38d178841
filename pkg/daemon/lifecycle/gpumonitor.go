package lifecycle

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// NodeGPUs are the GPUs of this node.
type NodeGPUs interface {
	// Watch calls event for each event of the GPUs until ctx ends. It calls ready once, when no
	// further events can be missed, with the number of GPUs that it watches; if there are none, it
	// returns. The error is the reason why it cannot watch any longer.
	Watch(ctx context.Context, ready func(gpus int), event func(gpu.ClassifiedEvent)) error
	// Topology returns the topology of the GPUs, as the checks have read it.
	Topology() gpu.Topology
}

// GPUMonitorConfig has the parameters of GPUMonitor.
type GPUMonitorConfig struct {
	*Publisher
	GPUs       NodeGPUs // nil if no GPUs are monitored
	Name       string   // name of the node, for messages
	NodeEvents *NodeEvents
	PrivateDir func() (string, error) // returns the daemon's private directory
	Header     func() record.Header
}

// GPUMonitor monitors the GPUs of a node. It provides their topology for the node's programs, and
// reports their events to the head.
type GPUMonitor struct {
	cfg           GPUMonitorConfig
	topologyState atomic.Pointer[knownTopology] // nil until the topology is known
}

// NewGPUMonitor returns the GPU monitor of a node. Its topology is not known yet.
func NewGPUMonitor(cfg GPUMonitorConfig) *GPUMonitor { return &GPUMonitor{cfg: cfg} }

// knownTopology is the known topology of this node's GPUs.
type knownTopology struct {
	topology gpu.Topology
	file     string // path of the topology file; empty: there is none
}

// topologyTimeout limits how long writing the topology file may take. It is better to do without
// the file than to delay the gate.
const topologyTimeout = 10 * time.Second

// storeTopology stores the topology for processes that are started from now on. It replaces an
// earlier one. It must not be called concurrently.
func (c *GPUMonitor) storeTopology(t gpu.Topology) {
	ctx, cancel := context.WithTimeoutCause(c.cfg.RunCtx, topologyTimeout, health.ErrDeadline)
	defer cancel()
	file, err := service.CallBounded(ctx, func() (string, error) { return c.writeTopologyFile(t) })
	if err != nil {
		c.cfg.Log.Warn("cannot write the topology for the node's programs", zap.Error(err))
	}
	c.topologyState.Store(&knownTopology{topology: t, file: file})
}

// writeTopologyFile writes the topology file into the private directory. It replaces the file
// atomically, so programs never read an incomplete one.
func (c *GPUMonitor) writeTopologyFile(t gpu.Topology) (file string, err error) {
	dir, err := c.cfg.PrivateDir()
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "topology.json")
	if err := files.ReplaceFile(file, append(text, '\n'), 0o600); err != nil {
		return "", err
	}
	return file, nil
}

// Topology returns the topology of this node. It has no GPUs until the topology is known.
func (c *GPUMonitor) Topology() gpu.Topology {
	if known := c.topologyState.Load(); known != nil {
		return known.topology
	}
	return gpu.Topology{}
}

// TopologyEnv returns the environment variables that describe the topology to child processes.
// Until it is known they are empty, not missing, so that variables of another daemon around this
// one are not inherited: they may describe other GPUs.
func (c *GPUMonitor) TopologyEnv() map[string]string {
	known := c.topologyState.Load()
	if known == nil {
		known = new(knownTopology)
	}
	env := known.topology.EnvVariables()
	env[gpu.TopologyFileVariable] = known.file
	return env
}

// NVLinkDomain returns the UUID of the NVLink fabric that this node's GPUs share with other nodes.
// It is empty if none is known.
func (c *GPUMonitor) NVLinkDomain() string {
	if known := c.topologyState.Load(); known != nil && known.topology.Domain != nil {
		return known.topology.Domain.Cluster
	}
	return ""
}
