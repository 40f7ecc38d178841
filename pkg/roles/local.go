package roles

import (
	"fmt"
	"slices"
)

// Local is the launcher of one machine: "bringupd local" starts all daemons there.
const Local Launcher = "local"

type local struct{}

func (local) name() Launcher { return Local }

func (local) claim(_ Environment, want Want) claim {
	if want.Local {
		return told
	}
	return unclaimed
}

func (local) traits() Traits { return Traits{} }

func (local) words(string) Words { return Words{Nested: otherName, Nodes: srunNodes} }

// identify takes what "bringupd local" says: all ranks are on this host.
func (local) identify(_ Environment, hostname string, want Want) (Identity, error) {
	if want.Rank == nil || want.Size == nil {
		return Identity{}, fmt.Errorf("internal error: a local daemon without rank or size")
	}
	id, err := plainIdentity(Local, hostname, *want.Rank, *want.Size, want.JobID, "")
	if err != nil {
		return Identity{}, err
	}
	id.Hosts = slices.Repeat([]string{hostname}, id.Size)
	id.LocalRank, id.LocalSize = id.Rank, id.Size
	return id, nil
}
