package planning

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/roles"
)

// The ports at which the ranks of an instance meet: the end of the block of its first node has
// groups of ports for instances, and the generations of an instance take turns.
const (
	rendezvousInstances   = MeetingPorts / rendezvousGenerations
	rendezvousGenerations = 8
)

// RendezvousPort returns the port at which the ranks of a generation meet. It differs from that of
// the generation before, because its connections may still exist. A busy port is used only if all are.
func RendezvousPort(first roles.NodeFacts, instance *roles.Instance, generation int) int {
	var free []int
	for i := range rendezvousGenerations {
		port := first.FirstPort + roles.BlockSize - 1 - (instance.Number%rendezvousInstances)*rendezvousGenerations - i
		if !slices.Contains(first.BusyPorts, port) {
			free = append(free, port)
		}
	}
	if len(free) == 0 {
		return first.FirstPort + roles.BlockSize - 1
	}
	return free[generation%len(free)]
}
