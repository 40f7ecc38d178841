package roles

import (
	"fmt"
	"slices"
)

// Local is the launcher of one machine: "bringupd local" starts all daemons there.
const Local Launcher = "local"

var local = launcher{
	name: Local, identify: identifyLocal, words: localWords,
	claim: func(_ Environment, want Want) claim {
		if want.Local {
			return told
		}
		return unclaimed
	},
}

func localWords(job string) Words {
	words := plainWords(job)
	words.Nodes = func(n int) string { return fmt.Sprintf("bringupd local --nodes=%d", n) }
	return words
}

// identifyLocal uses the values from "bringupd local". All nodes are on this host.
func identifyLocal(_ Environment, hostname string, want Want) (Identity, error) {
	if want.Rank == nil || want.Size == nil {
		return Identity{}, fmt.Errorf("internal error: a local daemon without rank or size")
	}
	id, err := plainIdentity(Local, hostname, *want.Rank, *want.Size, want.JobID, "")
	if err != nil {
		return Identity{}, err
	}
	id.Hosts = slices.Repeat([]string{hostname}, id.Size)
	id.LocalSize = id.Size
	return id, nil
}
