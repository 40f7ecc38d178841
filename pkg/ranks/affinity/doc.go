// Package affinity discovers the CPUs, memory, GPUs and network cards of a node that this process
// may use, divides them among the ranks of the node, and binds a thread to such a part, which all
// its child processes inherit. It also verifies the binding of a process. It does not know how
// ranks are numbered in a world.
package affinity
