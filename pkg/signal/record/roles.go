package record

import "time"

// Offer has what a node offers to the roles of a run.
type Offer struct {
	Header
	Address   string `json:"address"`         // at which other nodes reach it
	Group     int    `json:"group,omitempty"` // component of a heterogeneous job
	GPUs      int    `json:"gpus"`
	FirstPort int    `json:"first_port"`           // the first of a block of free ports; 0: no role needs one
	BusyPorts []int  `json:"busy_ports,omitempty"` // ports of the block that other programs have
	Domain    string `json:"domain,omitempty"`
}

// RolePlan has the facts from which each node makes the same plan of the roles.
type RolePlan struct {
	Header
	// Offers are those of the members of the team, in the order of their places.
	Offers []PlacedOffer `json:"offers"`
	// Generations has the first generation of each instance that a spare node has taken over, by the
	// number of the instance.
	Generations map[int]int `json:"generations,omitempty"`
	// Roles has what observers need to make the same plan. Commands and variables, which may contain
	// secrets, are not in it.
	Roles []PlannedRole `json:"roles,omitempty"`
}

// PlannedRole has the part of a role's definition from which observers make the plan, and the state
// of the role. The numbers have the meanings that package roles gives them.
type PlannedRole struct {
	Name         string        `json:"name"`
	Primary      bool          `json:"primary,omitempty"`
	Oneshot      bool          `json:"oneshot,omitempty"`
	After        []string      `json:"after,omitempty"`
	NeedStart    int           `json:"need_start"` // instances that the gate needs; -1: all
	NeedRun      int           `json:"need_run"`   // instances that must not be lost; -1: all
	MaxRestarts  int           `json:"max_restarts,omitempty"`
	ReadyProbe   string        `json:"ready_probe,omitempty"` // without secrets
	ReadyTimeout time.Duration `json:"ready_timeout_ns,omitempty"`
	Step         string        `json:"step,omitempty"`
	AllEndpoints bool          `json:"all_endpoints,omitempty"`
	Placement    RolePlacement `json:"placement"`
	Ports        []RolePort    `json:"ports,omitempty"`
}

// RolePlacement has the fields of the placement of a role in package roles.
type RolePlacement struct {
	Nodes            int      `json:"nodes"`
	Group            int      `json:"group,omitempty"`
	With             []string `json:"with,omitempty"`
	InstancesPerNode int      `json:"instances_per_node"`
	NodesPerInstance int      `json:"nodes_per_instance"`
	RanksPerNode     int      `json:"ranks_per_node"`
	HasRanks         bool     `json:"has_ranks,omitempty"`
	GPUs             int      `json:"gpus"`
	Segment          int      `json:"segment,omitempty"`
}

// RolePort has the fields of a port of a role in package roles.
type RolePort struct {
	Name   string `json:"name"`
	Number int    `json:"number,omitempty"`
	Count  int    `json:"count"`
}

// PlacedOffer is the offer of a member of the team.
type PlacedOffer struct {
	NodeIndex int    `json:"node_index"`
	Host      string `json:"host"`
	Address   string `json:"address"`
	Group     int    `json:"group,omitempty"`
	GPUs      int    `json:"gpus"`
	FirstPort int    `json:"first_port"`
	BusyPorts []int  `json:"busy_ports,omitempty"`
	Domain    string `json:"domain,omitempty"`
}

// InstanceExit describes the exit of an instance on a node. Its failure is that of the first process
// that has exited.
type InstanceExit struct {
	Failure
	Role  string `json:"role"`
	Index int    `json:"index"` // of the instance in its role
	// WillRestart reports that the node starts the instance again by itself, after Pause.
	WillRestart bool          `json:"will_restart,omitempty"`
	Pause       time.Duration `json:"pause_ns,omitempty"`
}

// InstanceStop describes the end of a primary instance on a node that was told to stop.
type InstanceStop struct {
	Header
	// Code is that of the process of rank 0, 128+n if signal n has ended it; 143 if it did not run on
	// this node.
	Code int `json:"code"`
}

// LiveInstances lists the instances that are ready, and those that are lost, by their numbers.
type LiveInstances struct {
	Header
	Ready []int `json:"ready"`
	Lost  []int `json:"lost,omitempty"`
}
