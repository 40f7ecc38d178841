package launcher

import (
	"fmt"
	"slices"
)

// LauncherLocal is the launcher of one machine: "bringupd local" starts all daemons there.
const LauncherLocal Launcher = "local"

var localLauncher = launcherSpec{
	name: LauncherLocal, identifyDaemon: identifyLocal, commandHints: localHints,
	claimOf: func(_ Environment, want Overrides) claimLevel {
		if want.Local {
			return claimGiven
		}
		return claimNone
	},
}

func localHints(job string) CommandHints {
	words := plainHints(job)
	words.StartOnNodes = func(n int) string { return fmt.Sprintf("bringupd local --nodes=%d", n) }
	return words
}

// identifyLocal uses the values from "bringupd local". All nodes are on this host.
func identifyLocal(_ Environment, hostname string, want Overrides) (Identity, error) {
	if want.NodeIndex == nil || want.Size == nil {
		return Identity{}, fmt.Errorf("internal error: a local daemon without rank or size")
	}
	id, err := plainIdentity(LauncherLocal, hostname, *want.NodeIndex, *want.Size, want.JobID, "")
	if err != nil {
		return Identity{}, err
	}
	id.Hosts = slices.Repeat([]string{hostname}, id.Size)
	id.LocalSize = id.Size
	return id, nil
}
