package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// Config is the resolved and validated configuration of a daemon. It must be the same on all nodes,
// which the digest verifies; fields marked digest:"-" may differ from node to node.
type Config struct {
	Identity launcher.Identity `digest:"-"`
	LogDir   string            `digest:"-"` // absolute; other nodes may mount it elsewhere
	Program  string            `digest:"-"` // version of this bringupd
	Workload
	// Team is the number of nodes that the driver gets. The zero value means all.
	Team      membership.NodeRange
	Framework framework.Framework
	Setup     string // run by /bin/sh on every node before anything else
	// CheckPolicy is the configuration of the checks, which Checks runs.
	CheckPolicy any
	Sandbox     Sandbox
	Lifeline    LinkMode // whether workers connect to the head
	Times       Timeouts
	After       PostRun
	Process     `digest:"-"`
	Output      `digest:"-"`
}

// Workload is what the job runs: a driver, the ranks of a world, or roles.
type Workload struct {
	Driver []string
	// World configures the ranks, if the driver is run as the ranks of a world.
	World RankOptions
	Roles RoleSet
}

// Process is what a daemon has by its place and its start.
type Process struct {
	// TempDir is a directory of the node, in which each attempt makes its own.
	TempDir string
	// Environ is the environment of the daemon, as NAME=VALUE.
	Environ []string
	// GivenFlags are the settings that are not defaults, as flags without secrets.
	GivenFlags []string
	// FirstStart is the start of the first attempt of this launch, as far as this process knows. The
	// deadline is counted from there, or from the daemon's start if it is zero.
	FirstStart time.Time
}

// Output configures the output of a daemon.
type Output struct {
	Streams Streams
	Verbose bool
	JSONLog bool
	// Progress is a regular expression with one group, which matches the step in lines of the driver
	// or of ranks. It is empty if no lines are watched.
	Progress string
	// MetricsDir is the directory of files for a Prometheus textfile collector; empty: none. A failed
	// export is logged, and does not end the job.
	MetricsDir string
}

// Streams are the daemon's own standard streams. The driver writes to its standard output.
type Streams struct{ In, Out, Err *os.File }

// Sandbox configures the sandboxes.
type Sandbox struct {
	Command string        // run by /bin/sh on every node; empty if there are none
	Ready   *health.Probe // nil if a sandbox is ready once it runs
	Require membership.SandboxQuorum
}

// IsRequested reports whether the gate waits for sandboxes.
func (s Sandbox) IsRequested() bool { return s.Command != "" }

// StepNames returns the names of the run's further job steps, in the order of their numbers.
func (c *Config) StepNames() []string {
	return roles.StepNames(c.Roles.Definitions)
}

// Timeouts are the timeouts. All are positive.
type Timeouts struct {
	Join time.Duration // from the start until all nodes have joined
	// Start limits each part of a node's start: the setup command, an active check, and a sandbox or a
	// service until it is ready.
	Start time.Duration
	Peer  time.Duration // from a peer's death until the job ends
	// Share is the maximum outage of the shared file system that is tolerated once the job runs and
	// while all peer links work. With 0 it is Peer.
	Share       time.Duration
	DriverGrace time.Duration // from TERM to KILL, unless the job must end sooner
	// StopGrace is the same for services and sandboxes, which end after the driver. At most half of
	// health.FinalTermTimeout is left for the driver then.
	StopGrace time.Duration
	Deadline  time.Duration // the whole job's, from the start of its head; 0: none
}

// DefaultTimeouts returns the default timeouts, which --help shows. The grace periods add up to
// less than health.FinalTermTimeout.
func DefaultTimeouts() Timeouts {
	return Timeouts{
		Join:        2 * time.Minute,
		Start:       10 * time.Minute,
		Peer:        10 * time.Second,
		Share:       10 * time.Minute,
		DriverGrace: 10 * time.Second,
		StopGrace:   5 * time.Second,
	}
}

// Validate returns an error for the first rule that the configuration violates. It does not access
// any file system.
func (c *Config) Validate() error {
	if !filepath.IsAbs(c.LogDir) {
		return fmt.Errorf("cannot use log directory %q: give an absolute path", c.LogDir)
	}
	if size := c.Team.ForSize(c.Identity.Size).Min; c.Sandbox.Require.ExceedsSize(size) {
		return fmt.Errorf("cannot require %s sandboxes: the job has %d nodes", c.Sandbox.Require, size)
	}
	if steps := c.StepNames(); len(steps) > 0 {
		if _, err := roles.ElectStepRole(c.Identity, steps[0]); err != nil {
			return err
		}
	}
	if err := c.validateRoles(); err != nil {
		return err
	}
	if err := c.World.validateRanks(c.Driver); err != nil {
		return err
	}
	if f := c.judgeDriver(); f != nil && f.IsCertain {
		return f
	}
	return c.Times.validateRanges()
}

// judgeDriver returns why the driver's launcher, such as torchrun, does not fit the nodes of the job;
// nil if it may, or if the driver is not the only program there.
func (c *Config) judgeDriver() *ranks.Finding {
	if c.NodesHaveServices() && !c.World.IsRequested() {
		return nil
	}
	team := c.Team.ForSize(c.Identity.Size)
	return ranks.JudgeCommand(c.Driver, slices.Concat(c.Environ, c.World.Env), c.World.RunnersOn(team.Min, team.Max))
}

// NodesHaveServices reports whether nodes run other programs of the job than its driver or ranks.
func (c *Config) NodesHaveServices() bool {
	return c.Framework.HasServices() || c.Sandbox.IsRequested()
}

// LaunchWarnings returns sentences about launchers of the driver, ranks or roles that may not fit the
// nodes of the job.
func (c *Config) LaunchWarnings() (sentences []string) {
	if f := c.judgeDriver(); f != nil {
		sentences = append(sentences, f.Warning())
	}
	ofRoles, _ := c.Roles.JudgeCommands(c.Identity.Size, c.Environ) // Validate returns the error
	return append(sentences, ofRoles...)
}

// ToleratesShareOutage reports whether an unresponsive shared file system is tolerated longer than
// an unresponsive peer.
func (t Timeouts) ToleratesShareOutage() bool { return t.Share > t.Peer }

func (t Timeouts) validateRanges() error {
	for _, row := range []struct {
		flag string
		d    time.Duration
		min  time.Duration
	}{
		{"join-timeout", t.Join, time.Second},
		{"start-timeout", t.Start, time.Second},
		{"peer-timeout", t.Peer, time.Second},
		{"driver-grace", t.DriverGrace, 0},
		{"deadline", t.Deadline, 0},
	} {
		if row.d < row.min {
			return fmt.Errorf("cannot use --%s=%s: give at least %s", row.flag, row.d, row.min)
		}
	}
	if t.DriverGrace > maxDriverGrace {
		return fmt.Errorf(
			"cannot use --driver-grace=%s: give at most %s, because a job that is told to end should",
			t.DriverGrace, maxDriverGrace)
	}
	return nil
}

const maxDriverGrace = time.Hour

// DriverGracePeriod returns the grace period of the driver and of ranks after TERM. On a node that
// is isolated from the others, it is at most the time that they have when Slurm ends the job:
// another attempt may follow without this node, and two of them must not run at the same time.
func (t Timeouts) DriverGracePeriod(isolated bool) time.Duration {
	if !isolated {
		return t.DriverGrace
	}
	return min(t.DriverGrace, health.FinalTermTimeout-t.StopGrace)
}

// LinkHeartbeatInterval returns the interval of heartbeats on a peer link, for any number of nodes.
func (t Timeouts) LinkHeartbeatInterval() time.Duration {
	return health.HeadHeartbeatTiming(t.Peer, 1).HeartbeatInterval
}

// AbortGracePeriod is the grace period of services between TERM and KILL after a failure. Results
// that they could save in a longer time are lost already.
const AbortGracePeriod = 2 * time.Second

// ChildGracePeriod returns the grace period after TERM of all children except the driver.
func (t Timeouts) ChildGracePeriod(failed bool) time.Duration {
	if failed {
		return min(t.StopGrace, AbortGracePeriod)
	}
	return t.StopGrace
}

// RelaxedPollInterval returns the interval between two polls of a worker, and between two renames
// of its heartbeat file, while a peer link notifies it of all changes.
func (t Timeouts) RelaxedPollInterval() time.Duration { return 4 * t.Peer }

// DaemonReturnTimeout returns the time within which a lost daemon must return for the next attempt,
// if the launcher is not known to restart daemons.
func (t Timeouts) DaemonReturnTimeout() time.Duration { return 3 * t.Peer }

// EndTimeout returns how long the last daemons of a job may take to end after the head, or the
// head after it was declared lost: to detect that, and for all grace periods.
func (c *Config) EndTimeout() time.Duration {
	grace := c.Times.DriverGrace + c.Times.StopGrace + c.Roles.LongestGrace()
	return 2*c.Times.Peer + grace + c.After.MaxDelay() + health.FinalTermTimeout
}

// HasSpares reports whether the job can run without some of its nodes.
func (c *Config) HasSpares() bool { return c.Team.ForSize(c.Identity.Size).Min < c.Identity.Size }

// AssignsPlaces reports whether the head assigns places in the team to its nodes when it has chosen
// them. Those of roles are in their plan.
func (c *Config) AssignsPlaces() bool { return c.HasSpares() && !c.Roles.AreGiven() }

// LinkMode selects whether workers connect to the head.
type LinkMode string

// The modes of --lifeline. The empty mode means auto.
const (
	LinkAuto LinkMode = "auto" // if a connection can be made; otherwise heartbeat files replace it
	LinkOn   LinkMode = "on"   // a worker that cannot connect fails
	LinkOff  LinkMode = "off"  // only heartbeat files
)

// LinkModes are the modes that a user can give.
var LinkModes = []string{string(LinkAuto), string(LinkOn), string(LinkOff)}
