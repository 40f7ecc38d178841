package deps

import (
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/ranks"
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
			address, _ := c.Address() // without one, the run ends where a program needs it
			return address.NameProblem()
		}
	}
	return checks
}

// masterVariable is set by the daemon for ranks, unless the user sets it for them.
const masterVariable = "MASTER_ADDR"

// networkMistakes returns what is wrong, on this node, in the variables of the run, and in those of
// roles, whose processes may run on other nodes only.
func (c *Config) networkMistakes() (wrong, doubtful []string, err error) {
	inherited, ofRanks := launcher.EnvironmentOf(c.Environ), ranks.ParseVariables(c.World.Env)
	wrong, err = launcher.FindNetworkMistakes(func(name string) (value string, isSet bool) {
		if value, isSet = ofRanks[name]; isSet || name == masterVariable {
			return value, isSet
		}
		return inherited(name)
	}, c.Identity.NodeIndex == 0)
	for _, role := range c.Roles.Definitions {
		found, roleErr := launcher.FindNetworkMistakes(func(name string) (value string, isSet bool) {
			value, isSet = role.Program.Env[name]
			return value, isSet
		}, false)
		if err == nil {
			err = roleErr
		}
		for _, mistake := range found {
			doubtful = append(doubtful, "role "+role.Name+": "+mistake)
		}
	}
	return wrong, doubtful, err
}
