// Package fitness says what the facts of a node's GPUs mean for a job: which of
// them it has, whether they are fit for it, and what nodes are compared by. It
// is policy over data: nothing here asks a driver or reads a file.
package fitness
