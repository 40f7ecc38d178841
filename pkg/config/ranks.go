package config

import (
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/mpidetect"
)

// RankOptions configures the ranks that all nodes run instead of a single driver. The zero value
// means that there are none.
type RankOptions struct {
	ranks.LayoutRequest
	// Env are additional variables of the ranks, as NAME=VALUE.
	Env  []string
	Bind affinity.ResourceKinds // to which each rank is bound
	// Output selects the ranks whose output is forwarded, and Tag prefixes each line with its rank.
	Output console.Mode
	Tag    bool
	// GoOn lets the other ranks continue if one has failed.
	GoOn bool
	// Hang is the time after which the job is ended if no rank shows a sign of activity; 0 means no
	// limit.
	Hang time.Duration
	// PMIx selects whether ranks get a PMIx server: auto, on, off, or the path of the libpmix.
	PMIx string
}

// rankFlags are the flags that only ranks obey, also those of roles.
var rankFlags = []string{
	"env", "output", "tag", "hang-timeout", "on-rank-failure", "bind", "oversubscribe", "pmix",
}

// ValidateRankFlags returns an error for a flag on the command line that only ranks obey, if the
// job has neither ranks nor roles.
func (c *Config) ValidateRankFlags(all List) error {
	if c.World.IsRequested() || c.Roles.AreGiven() {
		return nil
	}
	for _, name := range rankFlags {
		if all.FindSetting(name).Source != SourceFlag {
			continue
		}
		remedy := "give --ranks-per-node or --ranks"
		if name == "env" {
			remedy += ", or export the variable before bringupd starts"
		}
		return fmt.Errorf("cannot use --%s without ranks: %s", name, remedy)
	}
	return nil
}

func (w RankOptions) validateRanks(driver []string) error {
	if !w.IsRequested() {
		return nil
	}
	if len(driver) == 0 {
		return fmt.Errorf(
			"cannot start ranks without a command: give it after --, for example: bringupd " +
				"--ranks-per-node=4 -- ./app")
	}
	if w.Hang != 0 && w.Hang < time.Second {
		return fmt.Errorf("cannot use --hang-timeout=%s: give at least 1s, or 0 for none", w.Hang)
	}
	return mpidetect.CheckPool(driver, w.Total)
}
