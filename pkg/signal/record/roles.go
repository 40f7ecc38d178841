package record

import "time"

// Offer has what a node offers to the roles of a run.
type Offer struct {
	Header
	Address   string `json:"address"`         // at which other nodes reach it
	Group     int    `json:"group,omitempty"` // component of a heterogeneous job
	GPUs      int    `json:"gpus"`
	NUMAs     int    `json:"numas"` // number of its NUMA nodes
	Cores     int    `json:"cores"`
	FirstPort int    `json:"first_port"`           // the first of a block of free ports; 0: no role needs one
	BusyPorts []int  `json:"busy_ports,omitempty"` // ports of the block that other programs have
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
