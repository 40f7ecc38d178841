//go:build testbed && (ray || recipes)

package e2e

// A real Ray gives up starting if it gets too little processor time for half a minute, and MPI
// ranks use the processor even while they wait.
func init() { usualLanes = 1 }
