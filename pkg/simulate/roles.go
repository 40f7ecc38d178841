package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/preflight/roleplan"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// RoleLoad configures the roles of the job.
type RoleLoad struct {
	// Roles are those of the file. Without any, each node has a service that is ready at once.
	Roles config.RoleSet
	Path  string // of the file
	GPUs  int    // of each node
}

// Blocks returns the keys of the file that are not settings of a simulation: the roles, and the
// settings of a job that have no meaning here.
func (l *RoleLoad) Blocks(own, ofJob setting.List) []setting.Block {
	blocks := l.Roles.Blocks()
	for _, other := range ofJob.FilterSettings((*setting.Setting).IsFileKey) {
		if own.FindSetting(other.Name) == nil {
			blocks = append(blocks, setting.Block{Key: other.Name, Read: func(string, *yaml.Node) error { return nil }})
		}
	}
	return blocks
}

// PlanRoles returns where the instances of the roles run.
func (c Config) PlanRoles() (*roleplan.Preview, error) {
	return roleplan.NewPreview(rolefile.File{Roles: c.Roles.Definitions, Spares: c.Roles.Spares}, roleplan.AssumeNodes([]int{c.Nodes}, []int{c.GPUs}))
}

// validateRoles returns an error for roles that cannot be simulated.
func (c Config) validateRoles() error {
	switch {
	case !c.Roles.AreGiven() && c.Path != "":
		return fmt.Errorf("cannot use --config=%s: it has no roles", c.Path)
	case !c.Roles.AreGiven():
		return nil
	case c.Death != "":
		return errors.New("cannot simulate a death in a job with roles: use --fail, which shows what follows from it")
	case c.Ranks > 0:
		return errors.New("cannot simulate --ranks in a job with roles: the ranks of roles call no fences; leave it out")
	}
	_, err := c.PlanRoles()
	return err
}

// roleSet returns the roles of the daemons. Their processes have stand-ins, which need no probe, no
// framework and no job step of their own.
func (l RoleLoad) roleSet() config.RoleSet {
	set := l.Roles
	set.Definitions = slices.Clone(set.Definitions)
	for i := range set.Definitions {
		def := &set.Definitions[i]
		def.Ready.Probe, def.Alive.Probe, def.Program.Framework, def.Program.Step = "", "", "", ""
	}
	return set
}

// simulatedPort is the first port of each simulated node.
const simulatedPort = 20000

// addTo makes a daemon one of a job with roles.
func (l RoleLoad) addTo(daemon *deps.Config) {
	if !l.Roles.AreGiven() {
		return
	}
	daemon.Framework, daemon.Roles = framework.None{}, l.roleSet()
	daemon.Identity.GPUs, daemon.Identity.GPUsSource = l.GPUs, "simulation"
	daemon.Simulation = deps.SimHooks{NoSockets: true, RoleProcesses: l.standIns(), FirstPort: simulatedPort}
}

// RoleCounts has the numbers of a job's roles.
type RoleCounts struct {
	Roles     int `json:"roles"`
	Instances int `json:"instances"`
	Endpoints int `json:"endpoints"`
}

// simulatedRoles is the progress of the roles of a job.
type simulatedRoles struct {
	counts RoleCounts
	// pending has the number of instances of each node that have not been ready.
	pending []atomic.Int64
}

// newSimulatedRoles returns the progress of the roles of a job, or nil if it has none.
func newSimulatedRoles(cfg Config) *simulatedRoles {
	if !cfg.Roles.AreGiven() {
		return nil
	}
	preview, err := cfg.PlanRoles()
	if err != nil {
		return nil // the daemons find that, too
	}
	s := &simulatedRoles{pending: make([]atomic.Int64, cfg.Nodes)}
	s.counts.Roles = len(preview.Plan.Roles)
	for i := range preview.Plan.Roles {
		role := &preview.Plan.Roles[i]
		s.counts.Instances += len(role.Instances)
		s.counts.Endpoints += len(preview.Plan.Endpoints(role))
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
	return strings.HasSuffix(name, ".g0."+string(record.InstanceReady)) && s.pending[node].Add(-1) == 0
}

// standIns starts stand-ins for the processes of roles. They run until they are stopped, or end at
// once with 0 if their role is in the list.
type standIns struct{ oneshot []string }

// standIns returns the starter of the stand-ins of a node.
func (l RoleLoad) standIns() (s standIns) {
	for _, def := range l.Roles.Definitions {
		if def.Oneshot {
			s.oneshot = append(s.oneshot, def.Name)
		}
	}
	return s
}

// Start implements deps.ProcessStarter.
func (s standIns) Start(_ context.Context, spec process.Spec) (process.Handle, error) {
	c := &standIn{name: spec.Name, ended: make(chan struct{})}
	if role, _, _ := strings.Cut(spec.Name, "."); slices.Contains(s.oneshot, role) {
		c.end(process.Exit{})
	}
	return c, nil
}

// standIn stands in for a process of a role.
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

// Name implements process.Handle.
func (c *standIn) Name() string { return c.name }

// PID implements process.Handle. There is no process.
func (*standIn) PID() int { return 0 }

// Ended implements process.Handle.
func (c *standIn) Ended() <-chan struct{} { return c.ended }

// Done implements process.Handle.
func (c *standIn) Done() <-chan struct{} { return c.ended }

// Exit implements process.Handle.
func (c *standIn) Exit() process.Exit {
	select {
	case <-c.ended:
		return c.exit
	default:
		return process.Exit{Code: -1}
	}
}

// LastLines implements process.Handle. There is no output.
func (*standIn) LastLines() []string { return nil }

// OutputStats implements process.Handle.
func (*standIn) OutputStats() (bytes int64, ago time.Duration) { return 0, 0 }

// OwnsProcess implements process.Handle.
func (*standIn) OwnsProcess(int) bool { return false }

// Signal implements process.Handle. Each signal ends the process.
func (c *standIn) Signal(sig syscall.Signal) error {
	c.end(process.Exit{Code: -1, Signal: sig, Requested: true})
	return nil
}

// Stop implements process.Handle.
func (c *standIn) Stop(_ context.Context, _ time.Duration, first syscall.Signal) process.Exit {
	if first == 0 {
		first = syscall.SIGKILL
	}
	_ = c.Signal(first) // never fails
	return c.exit
}

// StopProcesses implements process.Handle.
func (c *standIn) StopProcesses(ctx context.Context, grace time.Duration, first syscall.Signal) error {
	return c.Stop(ctx, grace, first).Err
}
