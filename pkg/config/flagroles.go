package config

import (
	"fmt"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
	"github.com/bringupd/bringupd/pkg/signal"
)

// RoleFile returns the roles and the spare nodes of the job: those of its file, or those for which
// its flags are short forms: setup, head and worker or cluster, sandbox, and ranks or driver. Its
// error names a flag that no key can express.
func (c *Config) RoleFile() (rolefile.File, error) {
	if c.Roles.AreGiven() {
		return rolefile.File{Roles: c.Roles.Definitions, Spares: c.Roles.Spares}, nil
	}
	var file rolefile.File
	if team := c.Team.ForSize(c.Identity.Size); c.HasSpares() {
		if team.Min < team.Max {
			return file, fmt.Errorf("cannot express --nnodes=%s as roles: the key spares has one number of nodes; "+
				"give --nnodes=%d or --nnodes=%d", c.Team, team.Min, team.Max)
		}
		file.Spares = roles.Spares{0: c.Identity.Size - team.Min}
	}
	if setup := c.SetupRole(); setup != nil {
		file.Roles = append(file.Roles, *setup)
	}
	file.Roles = append(file.Roles, c.serviceRoles()...)
	file.Roles = append(file.Roles, c.sandboxRoles()...)
	if len(c.Driver) > 0 {
		file.Roles = append(file.Roles, c.primaryRole(file.Roles))
	}
	return file, nil
}

// SetupRole returns the role that prepares each node before its checks, or nil if there is none.
func (c *Config) SetupRole() *roles.Definition {
	for i := range c.Roles.Definitions {
		if def := &c.Roles.Definitions[i]; def.PreparesNode {
			return def
		}
	}
	if c.Setup == "" {
		return nil
	}
	setup := c.newRole("setup", roles.NodesAll, c.Setup, nil)
	setup.Oneshot, setup.PreparesNode, setup.Timeout = true, true, c.Times.Start
	setup.Ready.Timeout, setup.Stop.Grace = roles.DefaultReadyTimeout, roles.DefaultGrace
	return &setup
}

// RunRoles returns the roles that the daemons run: those of the file except the one that prepares the
// nodes, or the built-in ones for which the flags stand. The primary one is the first: the number of its
// instance does not depend on the team.
func (c *Config) RunRoles() (all []roles.Definition) {
	if c.Roles.AreGiven() {
		return roles.WithoutSetup(c.Roles.Definitions)
	}
	if c.Framework.HasServices() { // which node runs none, the framework says
		head := c.newRole("head", roles.NodesHead, "", nil)
		worker := c.newRole("worker", roles.NodesAll, "", nil)
		head.BuiltIn, worker.BuiltIn = roles.BuiltInHead, roles.BuiltInWorker
		traits := framework.TraitsOf(c.Framework)
		head.Program.Log = signal.LogPrefix(traits.HeadName)
		worker.Program.Log = signal.LogPrefix(traits.WorkerName)
		worker.Program.NotOnHead = traits.NoWorkerOnHead
		worker.After = []string{head.Name}
		all = append(all, head, worker)
	}
	for _, sandbox := range c.sandboxRoles() {
		sandbox.BuiltIn, sandbox.Program.Log = roles.BuiltInSandbox, "sandbox"
		all = append(all, sandbox)
	}
	if len(c.Driver) == 0 {
		return all
	}
	primary := c.primaryRole(all)
	primary.BuiltIn, primary.Program.Log = roles.BuiltInDriver, "driver"
	if c.World.IsRequested() {
		primary.BuiltIn, primary.Program.Log = roles.BuiltInRanks, signal.RankLogPrefix
		if c.After.Rules.RestartsRanks() && !c.World.GoOn {
			primary.Restarts.Max = c.After.Restarts
		}
	}
	// Each node counts and binds its ranks by itself.
	primary.Placement.GPUs = roles.GPUsAll
	if c.World.NeedsSlotCounts() {
		primary.Placement.RanksPerNode = roles.PerSlot
	}
	primary.Placement.Oversubscribe = c.World.Oversubscribe && c.World.PerNode == ""
	return append([]roles.Definition{primary}, all...)
}

// newRole returns a role of services, with a process on each node that is not bound to GPUs.
func (c *Config) newRole(name string, nodes int, command string, ready *health.Probe) roles.Definition {
	def := rolefile.NewDefinition()
	def.Name, def.Program.Command, def.Program.Ports = name, command, nil
	def.Placement.Nodes, def.Placement.GPUs = nodes, roles.GPUsAll
	def.Ready.Timeout, def.Stop.Grace = c.Times.Start, c.Times.StopGrace
	if ready != nil {
		def.Ready.Probe = ready.String()
	}
	return def
}

func (c *Config) serviceRoles() (all []roles.Definition) {
	own, isNone := c.Framework.(framework.None)
	if !isNone {
		cluster := c.newRole("cluster", roles.NodesAll, "", nil)
		cluster.Placement.NodesPerInstance, cluster.Program.Framework = roles.NodesAll, c.Framework.Name()
		port := framework.TraitsOf(c.Framework).HeadPort
		cluster.Program.Ports = []roles.PortRequest{{Name: rolefile.DefaultPort, Number: port, Count: 1}}
		return []roles.Definition{cluster}
	}
	if own.HeadCommand != "" {
		all = append(all, c.newRole("head", roles.NodesHead, own.HeadCommand, own.HeadReady))
	}
	nodes := roles.NodesAll
	if own.DedicatedHead {
		nodes = roles.NodesOthers
	}
	if own.WorkerCommand != "" && c.hasNodes(nodes) {
		worker := c.newRole("worker", nodes, own.WorkerCommand, own.WorkerReady)
		if own.HeadCommand != "" {
			worker.After = []string{"head"}
		}
		all = append(all, worker)
	}
	return all
}

// hasNodes reports whether the job has nodes of this kind: with one node there are no others.
func (c *Config) hasNodes(kind int) bool { return kind != roles.NodesOthers || c.Identity.Size != 1 }

func (c *Config) sandboxRoles() (all []roles.Definition) {
	if !c.Sandbox.IsRequested() {
		return nil
	}
	add := func(name string, nodes int, quorum roles.Quorum) {
		sandbox := c.newRole(name, nodes, c.Sandbox.Command, c.Sandbox.Ready)
		sandbox.Required = roles.Requirement{Start: quorum, Run: quorum}
		if c.hasNodes(nodes) {
			all = append(all, sandbox)
		}
	}
	if !c.Sandbox.Require.IsOfHead() {
		add("sandbox", roles.NodesAll, c.Sandbox.Require.Quorum)
		return all
	}
	add("sandbox", roles.NodesHead, roles.QuorumAll)
	add("sandbox-others", roles.NodesOthers, 0)
	return all
}

// primaryRole returns the role of the driver, or of the ranks that it is run as, after all others.
func (c *Config) primaryRole(others []roles.Definition) roles.Definition {
	words := []string{"exec"}
	for _, word := range c.Driver {
		words = append(words, textutil.QuotePOSIXWord(word))
	}
	def := c.newRole("driver", roles.NodesHead, strings.Join(words, " "), nil)
	def.Primary, def.Stop.Grace, def.Ready.Timeout = true, c.Times.DriverGrace, roles.DefaultReadyTimeout
	for _, other := range others {
		def.After = append(def.After, other.Name)
	}
	if c.World.IsRequested() {
		c.World.expressRanks(&def)
	}
	return def
}

func (w RankOptions) expressRanks(def *roles.Definition) {
	p := &def.Placement
	def.Name, p.Nodes, p.NodesPerInstance = "ranks", roles.NodesAll, roles.NodesAll
	p.HasRanks, p.Ranks, p.RanksGoOn, def.HangTimeout = true, w.Total, w.GoOn, w.Hang
	if w.Bind.GPU {
		p.GPUs = roles.GPUsDivided
	}
	words := map[string]int{
		"": roles.PerSlot, ranks.PerGPU: roles.PerGPU, ranks.PerNUMA: roles.PerNUMA, ranks.PerCore: roles.PerCore,
	}
	p.RanksPerNode = words[w.PerNode]
	if count, isNumber := w.FixedPerNode(); isNumber {
		p.RanksPerNode = count
	}
	def.Program.Env = make(map[string]string)
	for _, variable := range w.Env {
		name, value, _ := strings.Cut(variable, "=")
		def.Program.Env[name] = value
	}
}
