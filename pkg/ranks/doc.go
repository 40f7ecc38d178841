// Package ranks is a world: a program that runs in many ranks over all nodes of a
// job. It says how many there are where, what each is told, and runs those of one
// node. It knows no framework.
//
// A world's ranks are numbered from 0. The node of a rank is its place in the team,
// and local is the rank's number on that node.
package ranks
