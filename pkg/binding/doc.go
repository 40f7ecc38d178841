// Package binding finds out what the processors, memory, GPUs and network cards of a node are, within what this process
// may use, shares them among the ranks that the node gets, binds a thread to such a share, which all that it forks
// inherits, and reads back whether a process is where it should be. It knows nothing of what ranks are called.
package binding
