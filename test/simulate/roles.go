package simulate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// ParseRoles returns the roles in the text of a configuration file, whose other keys it ignores.
func ParseRoles(text []byte) (set config.RoleSet, err error) {
	var file map[string]yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return set, err
	}
	for _, block := range set.Blocks() {
		if value, given := file[block.Key]; given {
			if err := block.Read("the file", &value); err != nil {
				return set, err
			}
		}
	}
	if !set.AreGiven() {
		return set, errors.New("cannot find roles in the file")
	}
	return set, nil
}

// RoleCounts has the numbers of a job's roles.
type RoleCounts struct{ Roles, Instances, Endpoints int }

// simulatedRoles is the progress of the roles of a job.
type simulatedRoles struct {
	counts RoleCounts
	// pending has the number of instances of each node that have not been ready.
	pending []atomic.Int64
	oneshot []string // names of the roles whose processes end at once with 0
}

// newSimulatedRoles returns the progress of the roles of a job, or nil if it has none.
func newSimulatedRoles(cfg Config) *simulatedRoles {
	if !cfg.Roles.AreGiven() {
		return nil
	}
	preview, err := cfg.planRoles()
	if err != nil {
		return nil // Validate has refused them
	}
	s := &simulatedRoles{pending: make([]atomic.Int64, cfg.Nodes)}
	s.counts.Roles = len(preview.Plan.Roles)
	for i := range preview.Plan.Roles {
		role := &preview.Plan.Roles[i]
		s.counts.Instances += len(role.Instances)
		s.counts.Endpoints += len(preview.Plan.Endpoints(role))
		if role.Oneshot {
			s.oneshot = append(s.oneshot, role.Name)
		}
		if roles.StartRuleOf(cfg.Roles.Definitions, role.Definition, true) == roles.StartAtGate {
			continue // without a probe, they publish only their end
		}
		for _, instance := range role.Instances {
			for _, place := range instance.Places() {
				s.pending[place].Add(1)
			}
		}
	}
	return s
}

// nodesWithInstances returns the number of nodes that have instances of roles.
func (s *simulatedRoles) nodesWithInstances() (count int) {
	for node := range s.pending {
		if s.pending[node].Load() > 0 {
			count++
		}
	}
	return count
}

// isUp reports whether a node is up with the mark of that name: its last instance is ready.
func (s *simulatedRoles) isUp(node int, name string) bool {
	isReady := strings.HasSuffix(name, ".g0."+string(record.InstanceReady))
	return isReady && s.pending[node].Add(-1) == 0
}

// simulatedPort is the first port of each simulated node.
const simulatedPort = 20000

// addTo makes a daemon one of a job with roles. Their processes have stand-ins, which need no probe,
// no framework and no job step of their own.
func (s *simulatedRoles) addTo(cfg Config, daemon *deps.Config) {
	if s == nil {
		return
	}
	daemon.Framework, daemon.Roles = framework.None{}, cfg.Roles
	daemon.Roles.Definitions = slices.Clone(cfg.Roles.Definitions)
	for i := range daemon.Roles.Definitions {
		def := &daemon.Roles.Definitions[i]
		def.Ready.Probe, def.Alive.Probe, def.Program.Framework, def.Program.Step = "", "", "", ""
	}
	daemon.Identity.GPUs, daemon.Identity.GPUsSource = cfg.GPUs, "simulation"
	daemon.Simulation = deps.SimHooks{NoSockets: true, RoleProcesses: s, FirstPort: simulatedPort}
}

// Start implements the starter of processes of roles.
func (s *simulatedRoles) Start(_ context.Context, spec process.Spec) (process.Handle, error) {
	c := &standIn{name: spec.Name, ended: make(chan struct{})}
	if role, _, _ := strings.Cut(spec.Name, "."); slices.Contains(s.oneshot, role) {
		c.end(process.Exit{})
	}
	return c, nil
}

// standIn stands in for a process of a role. It runs until it is stopped.
type standIn struct {
	name  string
	once  sync.Once
	exit  process.Exit // written before ended is closed
	ended chan struct{}
}

var _ process.Handle = (*standIn)(nil)

// end ends the process, unless it has ended.
func (c *standIn) end(exit process.Exit) {
	c.once.Do(func() {
		c.exit = exit
		close(c.ended)
	})
}

func (c *standIn) Name() string           { return c.name }
func (*standIn) PID() int                 { return 0 }
func (c *standIn) Ended() <-chan struct{} { return c.ended }
func (c *standIn) Done() <-chan struct{}  { return c.ended }
func (*standIn) LastLines() []string      { return nil }

// RecentLines implements process.Handle.
func (*standIn) RecentLines() (out, err []string) { return nil, nil }
func (*standIn) OwnsProcess(int) bool             { return false }

func (*standIn) OutputStats() (bytes int64, ago time.Duration) { return 0, 0 }

func (c *standIn) Exit() process.Exit {
	select {
	case <-c.ended:
		return c.exit
	default:
		return process.Exit{Code: -1}
	}
}

// Signal implements process.Handle. Each signal ends the process.
func (c *standIn) Signal(sig syscall.Signal) error {
	c.end(process.Exit{Code: -1, Signal: sig, Requested: true})
	return nil
}

func (c *standIn) Stop(_ context.Context, _ time.Duration, first syscall.Signal) process.Exit {
	if first == 0 {
		first = syscall.SIGKILL
	}
	c.end(process.Exit{Code: -1, Signal: first, Requested: true})
	return c.exit
}

func (c *standIn) StopProcesses(ctx context.Context, grace time.Duration, first syscall.Signal) error {
	return c.Stop(ctx, grace, first).Err
}
