package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/gate"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/shown"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
)

// Config is everything a daemon was told, resolved and checked. All nodes must
// be told the same, as their digest tells; fields that are marked digest:"-" may
// differ from node to node.
type Config struct {
	Identity roles.Identity `digest:"-"`
	LogDir   string         `digest:"-"` // absolute; it may be mounted elsewhere on another node
	Program  string         `digest:"-"` // version of this bringupd
	Driver   []string
	// Team is how many of the nodes the driver gets; the zero value: all.
	Team      team.Bounds
	Framework framework.Framework
	Setup     string // run by /bin/sh on every node before anything else
	// CheckPolicy is what was told of the checks, which are made by Checks.
	CheckPolicy any
	Sandbox     SandboxConfig
	Lifeline    LifelineMode // whether workers connect to the head
	Times       Times
	Requeue     RequeueConfig
	Means       `digest:"-"`
	Output      `digest:"-"`
}

// Means are what a daemon works with on its node.
type Means struct {
	// Address returns where peers reach this node; it is asked when needed.
	Address func() (string, error)
	TempDir string // node-local; each attempt gets a directory in it
	Environ []string
	Checks  Checks // nil for none
	GPUs    GPUs   // that are watched; nil for nothing
	Signals <-chan os.Signal
	// Access is how the run directory is reached.
	Access signal.Access
	// Network is how workers connect to the head; nil for TCP.
	Network lifeline.Network
}

// Output is where a daemon tells what.
type Output struct {
	Files   Files
	Verbose bool
	JSONLog bool
	// LargeLog is from how many bytes on people are told that a child's log is
	// large; 0: 1 GiB.
	LargeLog int64
	// ShareStats has the head tell at the end what the share was asked.
	ShareStats bool
	Shown      shown.Config
}

// Files are the daemon's own standard streams: output is the driver's.
type Files struct{ In, Out, Err *os.File }

// SandboxConfig is the sandbox gate's.
type SandboxConfig struct {
	Command string        // run by /bin/sh on every node; empty: no sandbox here
	Step    bool          // the sandbox is a step of its own: wait for it only
	Ready   *health.Probe // nil: ready once it runs
	Require gate.Require
}

// Wanted tells whether there is a sandbox to wait for.
func (s SandboxConfig) Wanted() bool { return s.Command != "" || s.Step }

// Times are the deadlines; all are positive.
type Times struct {
	Join        time.Duration // from the start until all nodes have met
	Setup       time.Duration
	Sandbox     time.Duration
	Service     time.Duration // a head's or worker's service, from its start until it is up
	Peer        time.Duration // from a peer's death until the job ends
	Share       time.Duration // of a share that does not answer, once the job runs and while every lifeline is well; 0: no longer than Peer
	Settle      time.Duration // the framework must count the same nodes for as long
	DriverGrace time.Duration // from TERM to KILL, where no other end is near
	StopGrace   time.Duration // the same for services and sandbox, after the driver
}

// DefaultTimes are the deadlines that --help shows. The graces add up to less
// than endTime.
func DefaultTimes() Times {
	return Times{
		Join:        2 * time.Minute,
		Setup:       10 * time.Minute,
		Sandbox:     5 * time.Minute,
		Service:     5 * time.Minute,
		Peer:        10 * time.Second,
		Share:       10 * time.Minute,
		Settle:      time.Second,
		DriverGrace: 10 * time.Second,
		StopGrace:   5 * time.Second,
	}
}

// Validate returns an error for the first rule that the configuration breaks.
// Nothing on any file system is touched.
func (c *Config) Validate() error {
	if !filepath.IsAbs(c.LogDir) {
		return fmt.Errorf("cannot use log directory %q: give an absolute path", c.LogDir)
	}
	if c.Sandbox.Command != "" && c.Sandbox.Step {
		return fmt.Errorf("cannot both run a sandbox (--sandbox-cmd) and wait for one of another step (--sandbox-step): give one")
	}
	if size := c.Team.Of(c.Identity.Size).Min; c.Sandbox.Require.Exceeds(size) {
		return fmt.Errorf("cannot require %s sandboxes: the job has %d nodes", c.Sandbox.Require, size)
	}
	return c.Times.validate()
}

// outwaits tells whether a share that hangs is waited for longer than for a peer.
func (t Times) outwaits() bool { return t.Share > t.Peer }

func (t Times) validate() error {
	for _, row := range []struct {
		flag string
		d    time.Duration
		min  time.Duration
	}{
		{"join-timeout", t.Join, time.Second},
		{"setup-timeout", t.Setup, time.Second},
		{"sandbox-timeout", t.Sandbox, time.Second},
		{"service-timeout", t.Service, time.Second},
		{"peer-timeout", t.Peer, time.Second},
		{"share-timeout", t.Share, 0},
		{"settle", t.Settle, 0},
		{"driver-grace", t.DriverGrace, 0},
		{"stop-grace", t.StopGrace, 0},
	} {
		if row.d < row.min {
			return fmt.Errorf("cannot use --%s=%s: give at least %s", row.flag, row.d, row.min)
		}
	}
	for _, row := range []struct {
		flag    string
		d, most time.Duration
		why     string
	}{
		{"driver-grace", t.DriverGrace, mostDriverGrace, "a job that is told to end should"},
		{"stop-grace", t.StopGrace, mostStopGrace, "Slurm kills the job 30 s after TERM, and the driver has its grace first"},
	} {
		if row.d > row.most {
			return fmt.Errorf("cannot use --%s=%s: give at most %s, because %s", row.flag, row.d, row.most, row.why)
		}
	}
	return nil
}

const (
	mostDriverGrace = time.Hour
	mostStopGrace   = endTime / 2
)

// driverGrace is how long the driver has after TERM. Where the run has failed
// it is no longer than where Slurm ends the job.
func (t Times) driverGrace(end *ending) time.Duration {
	if end.gentle {
		return t.DriverGrace
	}
	return min(t.DriverGrace, endTime-t.StopGrace)
}

// abortGrace is what services get between TERM and KILL where the run has
// failed: what they would save in more time is lost already.
const abortGrace = 2 * time.Second

// stopGrace is how long all but the driver have after TERM.
func (t Times) stopGrace(end *ending) time.Duration {
	if end.orderly || end.gentle {
		return t.StopGrace
	}
	return min(t.StopGrace, abortGrace)
}

// Checks are the checks of this node.
type Checks interface {
	// Await looks at the node until there is nothing to wait for any more, or
	// ctx ends. What it waits for, it tells progress.
	Await(ctx context.Context, progress func(check.Report)) check.Report
	// Judge returns what findings of others' mean by the policy in force.
	Judge(findings []check.Finding) []check.Finding
	// Longest is how long Await may take.
	Longest() time.Duration
}
