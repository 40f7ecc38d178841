// Package meeting is where the ranks of a world meet: they put values, get them, fence, abort and watch. A program asks
// its node's daemon (Node) by a local socket, and the nodes ask the head (Head) by a connection each. A node sends one
// arrival a fence, however many ranks it has. Data is not broadcast: who gets asks the head, and the node keeps it.
package meeting
