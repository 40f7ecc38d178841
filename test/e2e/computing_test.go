//go:build testbed && (ray || recipes)

package e2e

// A real Ray gives up a start that gets too little of the processor for half a minute, and the
// ranks of an MPI use it while they wait.
func init() { usualLanes = 1 }
