// Package ranks plans and runs a world: a program that runs in many processes, the ranks, on the
// nodes of a job. It determines how many ranks run on each node and their environment, and starts
// and supervises the ranks of one node. It does not depend on any framework.
//
// Ranks of a world are numbered from 0. A rank's node is the index of the node in the team. Its
// local number is its index among the ranks of that node.
package ranks
