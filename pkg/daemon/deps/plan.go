package deps

import (
	"path/filepath"
	"time"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// The maximum lengths of published texts in characters. All nodes read them at the same moment.
const (
	maxPublishedCommand = 2000
	maxPublishedFlag    = 500
	maxPublishedFlags   = 64
	maxPublishedRoles   = 64
)

// PublishedPlan returns the plan that is published for observers outside of the job.
func (c *Config) PublishedPlan() *record.Plan {
	p := &record.Plan{
		Framework: c.Framework.Name(), NodesNeeded: c.Team.ForSize(c.Identity.Size).Min,
		JoinTimeout: c.Times.Join,
		MaxHeartbeatInterval: c.Times.RelaxedPollInterval() + health.HeadHeartbeatTiming(c.Times.Peer,
			c.Identity.Size).HeartbeatInterval,
	}
	if c.HasNodeChecks() {
		p.CheckTimeout = c.CheckTimeout()
	}
	if len(c.Driver) > 0 {
		p.Driver, p.HasRanks = filepath.Base(c.Driver[0]), c.World.IsRequested()
		p.Command = textutil.TruncateText(textutil.FormatCommand(textutil.RedactArgs(c.Driver)...), maxPublishedCommand)
	}
	for _, role := range c.Roles.Definitions[:min(len(c.Roles.Definitions), maxPublishedRoles)] {
		p.Roles = append(p.Roles, role.Name)
	}
	for _, flag := range c.GivenFlags[:min(len(c.GivenFlags), maxPublishedFlags)] {
		p.Flags = append(p.Flags, textutil.TruncateText(flag, maxPublishedFlag))
	}
	p.JobName, _ = envlist.Lookup(c.Environ, c.Identity.Launcher.Traits().JobNameVariable)
	return p
}

// HasNodeChecks reports whether nodes publish that they have passed their checks.
func (c *Config) HasNodeChecks() bool { return c.SetupRole() != nil || c.Checks != nil }

// CheckTimeout returns the time within which a node must have passed its checks.
func (c *Config) CheckTimeout() time.Duration {
	within := time.Duration(0)
	if setup := c.SetupRole(); setup != nil {
		within += setup.Timeout
	}
	if c.Checks != nil {
		within += c.Checks.MaxDuration()
	}
	return within
}

// RunLocation returns the location of the run directory, and the identity of this node in it.
func (c *Config) RunLocation() signal.Location {
	id := c.Identity
	return signal.Location{LogDir: c.LogDir, Run: id.RunName(), Key: id.LaunchKey,
		NodeIndex: id.NodeIndex, Size: id.Size, Host: id.Host, IsNamed: id.Launcher == launcher.LauncherSlurm,
		Access: c.Access}
}
