// Package daemon implements the sequence of a run. It joins the nodes of a job, verifies that they
// are ready, starts their services, and opens the gate for the driver. When any part fails, it ends
// the whole job and reports the first cause.
//
// There is one daemon per node; the daemon of node 0 is also the head. All tasks and children of a
// daemon depend on the contexts of lifecycle.Lifetime. Their cause is an orderly *lifecycle.Outcome
// or a failure.
//
// In comments, Nodes and Control are the subdirectories signal.NodesDir and signal.ControlDir of
// the run directory. The team is the set of nodes that the driver gets, each with a place in it. If
// the launch has more nodes than the driver needs, the others are spares.
package daemon
