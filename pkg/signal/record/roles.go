package record

import "time"

// Offer has what a node offers to the roles of a run.
type Offer struct {
	Header
	Address   string `json:"address"`         // at which other nodes reach it
	Group     int    `json:"group,omitempty"` // component of a heterogeneous job
	GPUs      int    `json:"gpus"`
	FirstPort int    `json:"first_port"` // the first of a block of free ports
	Domain    string `json:"domain,omitempty"`
}

// RolePlan has the facts from which each node makes the same plan of the roles.
type RolePlan struct {
	Header
	// Offers are those of the members of the team, in the order of their places.
	Offers []PlacedOffer `json:"nodes"`
}

// PlacedOffer is the offer of a member of the team.
type PlacedOffer struct {
	NodeIndex int    `json:"node"`
	Host      string `json:"host"`
	Address   string `json:"address"`
	Group     int    `json:"group,omitempty"`
	GPUs      int    `json:"gpus"`
	FirstPort int    `json:"first_port"`
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

// LiveInstances lists the instances that are ready, and those that are lost, by their numbers.
type LiveInstances struct {
	Header
	Ready []int `json:"ready"`
	Lost  []int `json:"lost,omitempty"`
}
