package deps

import (
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// NetworkChecks returns what is checked about the network of this node, or nil if the programs of the
// run do not communicate between machines, as far as that is known.
func (c *Config) NetworkChecks() *check.Network {
	spans := c.World.IsRequested() || c.Roles.AreGiven() || c.Framework.HasServices()
	if !spans || c.Identity.Size == 1 || c.Identity.Launcher == launcher.LauncherLocal {
		return nil
	}
	checks := &check.Network{FindMistakes: c.networkMistakes}
	if c.Address != nil { // bringupd doctor has its own check
		checks.NameProblem = func() string {
			address, _ := c.Address() // without one, the run ends if a program needs it
			return address.NameProblem()
		}
	}
	return checks
}

// masterVariable is set by the daemon for ranks, unless the user sets it for them.
const masterVariable = "MASTER_ADDR"

// networkMistakes returns mistakes in the variables of the run on this node. Those that may be right are
// doubtful: in variables of roles, whose processes may run on other nodes only, and in all variables if each
// instance of the roles is on one node.
func (c *Config) networkMistakes() (wrong, doubtful []string, err error) {
	inherited, ofRanks := launcher.EnvironmentOf(c.Environ), ranks.ParseVariables(c.World.Env)
	hasGPUs := fitness.MayHaveGPUs(c.Identity.GPUs, c.Environ)
	wrong, err = launcher.FindNetworkMistakes(func(name string) (value string, isSet bool) {
		if value, isSet = ofRanks[name]; isSet || name == masterVariable {
			return value, isSet
		}
		return inherited(name)
	}, launcher.NetworkUse{HasRank0: c.Identity.NodeIndex == 0, HasGPUs: hasGPUs})
	spanning := 0
	for _, role := range c.Roles.Definitions {
		if !spansNodes(role) {
			continue
		}
		spanning++
		found, roleErr := launcher.FindNetworkMistakes(func(name string) (value string, isSet bool) {
			value, isSet = role.Program.Env[name]
			if strings.Contains(value, "$BRINGUPD_") || strings.Contains(value, "${BRINGUPD_") {
				return "", false // it is known when the process starts
			}
			return value, isSet
		}, launcher.NetworkUse{HasGPUs: hasGPUs})
		if err == nil {
			err = roleErr
		}
		for _, mistake := range found {
			doubtful = append(doubtful, "role "+role.Name+": "+mistake)
		}
	}
	if spanning == 0 && c.Roles.AreGiven() {
		return nil, append(wrong, doubtful...), err
	}
	return wrong, doubtful, err
}

// spansNodes reports whether an instance of a role may have processes on several nodes.
func spansNodes(role roles.Definition) bool {
	return role.Placement.NodesPerInstance != 1 || role.Program.Framework != ""
}
