package roles

// NodeFacts is what the placement of roles needs to know about a node.
type NodeFacts struct {
	Host    string `json:"host"`
	Address string `json:"address"` // at which other nodes reach it
	Group   int    `json:"group,omitempty"`
	GPUs    int    `json:"gpus,omitempty"`
	// FirstPort is the first of BlockSize ports that were free on the node.
	FirstPort int `json:"first_port,omitempty"`
	// Domain is the NVLink domain of the node; empty if it is in none.
	Domain string `json:"domain,omitempty"`
}

// BlockSize is the number of ports that a node offers for its processes.
const BlockSize = 512

// Plan states which process of which role runs where, on which GPUs, and with which ports. All
// nodes make the same plan from the same definitions and the same facts.
type Plan struct {
	Nodes []NodeFacts // the nodes of the team, in the order of their places
	Roles []RolePlan  // in the order of the definitions
}

// RolePlan is the part of a role in a plan.
type RolePlan struct {
	*Definition
	Nodes     []int // places of the role's nodes, sorted
	Instances []Instance
}

// Instance is a set of processes of a role that start, count and fail as one.
type Instance struct {
	Number    int       // number of the instance among those of all roles
	Index     int       // index of the instance in its role
	Processes []Process // sorted by rank
}

// Process is one process of an instance.
type Process struct {
	Rank  int // within the instance
	Place int // place of its node in the team
	Local int // index among the processes of this instance on its node
	// GPUs are the indices of its GPUs on its node. It is nil if the process is not bound and sees all
	// of them, and empty if it must see none.
	GPUs []int
	// Ports has the first number of each port of the definition, in its order.
	Ports []int
}
