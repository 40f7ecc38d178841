// Package rendezvous is the rendezvous service of a world's ranks: they put and get values, enter
// fences (barriers), abort the job and watch events. A program connects to its node's daemon (Node)
// through a local socket, and each node holds one connection to the head (Head). A node sends one
// arrival message per fence, no matter how many ranks it has. Values are not broadcast: a node that
// needs one requests it from the head and caches it.
package rendezvous
