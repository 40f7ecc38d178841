package roles

import (
	"slices"
	"strings"
	"time"
)

// Definition defines a role: a named program, the nodes and resources that its instances get, when
// they start and are ready, and what a failure means. Its JSON form is a part of [PlanRecord], and
// has only what an observer needs to make the plan and to determine the state of the role.
type Definition struct {
	Name      string    `json:"name"`
	Placement Placement `json:"placement"`
	Program   Program   `json:"program"`
	// After names the roles that must have their Required.Start instances ready, or done if they are
	// oneshot, before this role starts.
	After []string `json:"after,omitempty"`
	// Oneshot reports that the role's processes end with 0 before the roles after it start.
	Oneshot bool `json:"oneshot,omitempty"`
	// PreparesNode reports that the role is oneshot and runs on each node before the node's checks,
	// of which its failure is one.
	PreparesNode bool `json:"-"`
	// Timeout is how long a process of a oneshot role may run; 0 for other roles.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
	// HangTimeout is how long the processes of an instance may show no sign of activity; 0: for ever.
	HangTimeout time.Duration `json:"-"`
	// Primary reports that the run ends when this role and all other primary ones have ended with 0.
	Primary  bool          `json:"primary,omitempty"`
	Ready    ReadyProbe    `json:"ready,omitzero"`
	Alive    AliveProbe    `json:"-"`
	Restarts RestartPolicy `json:"restarts,omitzero"`
	Required Requirement   `json:"require"`
	Stop     StopPolicy    `json:"-"`
	Line     int           `json:"-"` // line of the role in its file, from 1; 0 if it has none
	// BuiltIn is the kind of a role for which flags stand: its processes have their own names, logs and
	// variables. It is empty for a role of a file.
	BuiltIn BuiltIn `json:"built_in,omitempty"`
	// PlannedLater reports that the role gets instances only with a later plan.
	PlannedLater bool `json:"-"`
}

// BuiltIn is a kind of roles for which flags stand.
type BuiltIn string

// The kinds of built-in roles.
const (
	BuiltInDriver  BuiltIn = "driver"
	BuiltInRanks   BuiltIn = "ranks"
	BuiltInHead    BuiltIn = "head"    // the service of the head
	BuiltInWorker  BuiltIn = "worker"  // the service of each node
	BuiltInSandbox BuiltIn = "sandbox" // the sandbox of each node
)

// IsService reports whether the kind is that of a service. The daemon publishes its readiness as a
// state of its node, and ends it with all other processes of the node.
func (b BuiltIn) IsService() bool {
	return b == BuiltInHead || b == BuiltInWorker || b == BuiltInSandbox
}

// EndsWithAnyCode reports whether the role ends as it should with any exit codes, which decide about that
// of the run: it is the driver of flags, or its ranks go on when one has failed.
func (d *Definition) EndsWithAnyCode() bool {
	return d.Primary && (d.BuiltIn == BuiltInDriver || d.Placement.RanksGoOn)
}

// IsFlagWorld reports whether the role is the world of ranks of flags. A rank that fails fails its
// node, unless all ranks start again; ranks that have ended may have spawned others.
func (d *Definition) IsFlagWorld() bool { return d.BuiltIn == BuiltInRanks }

// EndsWithRun reports whether the processes of the role end when the run does, without an order. An
// instance that is lost is then a failure of the node, or the sandbox of the node is lost.
func (d *Definition) EndsWithRun() bool { return d.IsFlagWorld() || d.BuiltIn.IsService() }

// Placement states on which nodes the instances of a role run, and which resources they get.
type Placement struct {
	// Nodes is the number of nodes; NodesRest, NodesAll, NodesHead or NodesOthers.
	Nodes int `json:"nodes"`
	Group int `json:"group,omitempty"` // component of a heterogeneous job
	// With names the roles whose nodes this role shares. If it is empty and Nodes is a number or
	// NodesRest, the role claims nodes of its own.
	With []string `json:"with,omitempty"`
	// InstancesPerNode is at least 1, or PerGPU.
	InstancesPerNode int `json:"instances_per_node"`
	// NodesPerInstance is the number of nodes that one instance spans; NodesAll for one instance on
	// all nodes of the role.
	NodesPerInstance int `json:"nodes_per_instance"`
	// RanksPerNode is the number of processes of an instance on each of its nodes; PerGPU, PerNUMA,
	// PerCore or PerSlot.
	RanksPerNode int `json:"ranks_per_node"`
	// Ranks is the number of processes of an instance on all of its nodes, of which the first ones get
	// as many as RanksPerNode allows; 0: as many as the nodes allow together.
	Ranks int `json:"ranks,omitempty"`
	// HasRanks reports that the processes also get the variables of ranks.
	HasRanks bool `json:"has_ranks,omitempty"`
	// Oversubscribe lets each node have more than RanksPerNode if all have too few for Ranks.
	Oversubscribe bool `json:"oversubscribe,omitempty"`
	// RanksGoOn reports that the other ranks of an instance go on when one has failed.
	RanksGoOn bool `json:"ranks_go_on,omitempty"`
	// GPUs is the number of GPUs of each process; GPUsDivided, GPUsShared or GPUsAll.
	GPUs    int `json:"gpus"`
	Segment int `json:"segment,omitempty"` // the nodes are allotted in multiples of this number; 0: 1
}

// Values of the fields of [Placement] that are not numbers. They have one range, so that none of
// them can be taken for another.
const (
	NodesRest   = -1 // all nodes that no other role claims
	NodesAll    = -2 // all nodes
	NodesHead   = -3 // the first node
	NodesOthers = -8 // all nodes except the first one
	PerGPU      = -4 // one for each GPU of a node
	PerNUMA     = -9 // one for each NUMA node
	PerCore     = -10
	PerSlot     = -11 // one for each GPU, or for each core of a node without GPUs
	GPUsDivided = -5  // those of the node that no other role has, divided among the processes
	GPUsAll     = -6  // all of the node, not bound: the default of the short forms
	GPUsShared  = -7  // those of processes of the roles of With, or all that no other role has
)

// Program is what the processes of a role execute.
type Program struct {
	// Command is run by Shell for each process; if FollowerCommand is set, only for the process of
	// rank 0 of an instance.
	Command         string `json:"-"`
	FollowerCommand string `json:"-"`
	// Shell runs the commands with -c; empty: /bin/sh
	Shell string `json:"-"`
	// Env is added to the environment; an empty value removes a variable.
	Env map[string]string `json:"-"`
	// Ports are the ports of each process, in the order of the file. The first is the endpoint.
	Ports []PortRequest `json:"ports,omitempty"`
	// AllEndpoints reports that all processes of an instance are endpoints, not only that of rank 0.
	AllEndpoints bool `json:"all_endpoints,omitempty"`
	// Framework is the name of the framework of which each instance is a cluster; empty: none
	Framework string `json:"-"`
	// Step is the name of the job step whose daemons start the processes; empty: this one
	Step string `json:"step,omitempty"`
	// Log is the first part of the names of the logs of a built-in role: worker in worker-0007.log. It
	// is empty if no instance of the role has a process.
	Log string `json:"log,omitempty"`
	// NotOnHead reports that the instance of a built-in role on the head's node has no process.
	NotOnHead bool `json:"not_on_head,omitempty"`
}

// PortRequest is a port, or several, of each process of a role.
type PortRequest struct {
	Name   string `json:"name"`
	Number int    `json:"number,omitempty"` // 0: planned from the block of free ports of the node
	Count  int    `json:"count"`            // number of consecutive ports, at least 1
}

// ReadyProbe states when a process of a role is ready.
type ReadyProbe struct {
	// Probe is as the user has written it, such as "http://localhost:$BRINGUPD_PORT/health". It is
	// empty if the process is ready as soon as it runs.
	Probe       string        `json:"probe"`
	Timeout     time.Duration `json:"timeout_ns"` // from the start of the process
	ProbeLimits `json:"-"`
}

// ProbeLimits states how long and how often a process that was ready may fail a probe.
type ProbeLimits struct {
	Try    time.Duration // a try without an answer for so long is a miss
	Misses int           // number of misses in a row that count
}

// AliveProbe states when a process of a role that has been ready counts as hanging.
type AliveProbe struct {
	Probe string        // as in [ReadyProbe]; empty: none
	After time.Duration // the probe must have failed for so long
	ProbeLimits
}

// DefaultLimits returns the limits of the tries of a probe that must fail for the given time: a process
// that hangs has then failed it, and one that answers within that time has not.
func DefaultLimits(after time.Duration) ProbeLimits {
	return ProbeLimits{Try: min(DefaultTry, max(time.Second, after/DefaultMisses)), Misses: DefaultMisses}
}

// RestartPolicy states how often an instance may be started again.
type RestartPolicy struct {
	Max    int           `json:"max"` // restarts within Window
	Window time.Duration `json:"-"`   // always positive
	// The limits of the pauses before restarts in a row: see Pause. A row ends when Window has passed
	// without an exit.
	MinBackoff time.Duration `json:"-"`
	MaxBackoff time.Duration `json:"-"`
}

// Requirement states how many instances of a role are needed.
type Requirement struct {
	Start Quorum `json:"start"` // instances that are ready, for the gate and for the roles after this one
	Run   Quorum `json:"run"`   // instances that are not lost, for the run to go on
}

// Quorum is a number of instances of a role, or QuorumAll.
type Quorum int

// QuorumAll is the quorum of all instances of a role.
const QuorumAll Quorum = -1

// Of returns the number of instances that the quorum requires of a role with the given number of
// instances.
func (q Quorum) Of(instances int) int {
	if q == QuorumAll {
		return instances
	}
	return int(q)
}

// Lacks reports whether the quorum can no longer be met by a role that has lost some of its instances.
func (q Quorum) Lacks(lost, instances int) bool { return instances-lost < q.Of(instances) }

// StopPolicy states how the processes of a role are ended.
type StopPolicy struct {
	Grace  time.Duration // from the signal to SIGKILL
	Signal string        // such as "TERM"; StopSignalNone for SIGKILL after Grace only
}

// StopSignalNone is the stop signal of a role that is only killed when its grace period is over.
const StopSignalNone = "none"

// Defaults of a role.
const (
	DefaultReadyTimeout  = 30 * time.Minute
	DefaultTimeout       = 10 * time.Minute // a oneshot role's
	DefaultAliveAfter    = time.Minute
	DefaultTry           = 30 * time.Second
	DefaultMisses        = 3
	DefaultRestartWindow = 10 * time.Minute
	DefaultMinBackoff    = time.Second
	DefaultMaxBackoff    = 30 * time.Second
	DefaultGrace         = 10 * time.Second
)

// ClaimsNodes reports whether the role gets nodes that no other role claims.
func (p Placement) ClaimsNodes() bool {
	return len(p.With) == 0 && (p.Nodes > 0 || p.Nodes == NodesRest)
}

// Unsupported returns the key and the value of the role that no run obeys yet, or an empty string.
func (d *Definition) Unsupported() string {
	p := d.Placement
	switch {
	case p.RanksGoOn && !d.Primary:
		return "on-rank-failure: continue of a role that is not primary"
	case p.RanksGoOn && d.Restarts.Max > 0:
		return "on-rank-failure: continue with restarts"
	case d.Program.Framework != "" && (d.Primary || d.Oneshot):
		return "the key framework of a primary or oneshot role"
	}
	return ""
}

// CommandOf returns the command of the process of a rank of an instance. It is empty for the
// processes of a cluster other than the first, and for that one if the role has no command.
func (p Program) CommandOf(rank int) string {
	switch {
	case rank > 0 && p.Framework != "":
		return ""
	case rank > 0 && p.FollowerCommand != "":
		return p.FollowerCommand
	default:
		return p.Command
	}
}

// SimpleCommand returns the words of the command of the processes if the shell would do nothing but
// run one program with them, and nil otherwise. Words with variables are as written.
func (p Program) SimpleCommand() []string {
	words := strings.Fields(p.Command)
	if len(words) > 0 && words[0] == "exec" {
		words = words[1:]
	}
	if len(words) == 0 || strings.ContainsAny(p.Command, ";|&<>()`\n") ||
		strings.ContainsAny(words[0], `$'"\=~*?[{#!`) {
		return nil
	}
	return words
}

// ClusterRoles returns the names of the roles after or with which a role is, and whose instances
// are clusters of a framework, without clusters of which it is one itself. The first and only one is
// the cluster that the role's processes use.
func ClusterRoles(defs []Definition, def Definition, framework string) (names []string) {
	if framework == "" || def.Program.Framework == framework {
		return nil
	}
	for _, other := range defs {
		isNamed := slices.Contains(def.After, other.Name) || slices.Contains(def.Placement.With, other.Name)
		if isNamed && other.Program.Framework == framework {
			names = append(names, other.Name)
		}
	}
	return names
}

// WithoutSetup returns the roles except those that prepare the nodes: when the others start, these have
// succeeded.
func WithoutSetup(defs []Definition) []Definition {
	return without(defs, func(d Definition) bool { return d.PreparesNode })
}

// without returns the roles except those that match.
func without(defs []Definition, match func(Definition) bool) []Definition {
	if !slices.ContainsFunc(defs, match) {
		return defs
	}
	rest := slices.DeleteFunc(slices.Clone(defs), match)
	for i := range rest {
		rest[i].After = slices.DeleteFunc(slices.Clone(rest[i].After), func(name string) bool {
			return !slices.ContainsFunc(rest, func(d Definition) bool { return d.Name == name })
		})
	}
	return rest
}

// StepNames returns the names of the further job steps whose daemons start processes of the roles, in
// the order of the roles.
func StepNames(defs []Definition) (names []string) {
	for i := range defs {
		if step := defs[i].Program.Step; step != "" && !slices.Contains(names, step) {
			names = append(names, step)
		}
	}
	return names
}
