package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/advice"
	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/cards"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/gate"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/meeting"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/shown"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
)

// Config is the resolved and validated configuration of a daemon. It must be the same on all nodes,
// which the digest verifies; fields marked digest:"-" may differ from node to node.
type Config struct {
	Identity roles.Identity `digest:"-"`
	LogDir   string         `digest:"-"` // absolute; other nodes may mount it elsewhere
	Program  string         `digest:"-"` // version of this bringupd
	Driver   []string
	// World configures the ranks, if the driver is run as the ranks of a world.
	World World
	// Team is the number of nodes that the driver gets. The zero value means all.
	Team      team.Bounds
	Framework framework.Framework
	Setup     string // run by /bin/sh on every node before anything else
	// CheckPolicy is the configuration of the checks, which Checks runs.
	CheckPolicy any
	Sandbox     Sandbox
	Lifeline    LifelineMode // whether workers connect to the head
	Times       Times
	After       After
	Means       `digest:"-"`
	Output      `digest:"-"`
}

// Means are the dependencies of a daemon on its node.
type Means struct {
	// Address returns the address at which peers reach this node. It is called when the address is
	// needed.
	Address func() (string, error)
	TempDir string // local to the node; each attempt gets a directory in it
	Environ []string
	Checks  Checks     // nil if there are no checks
	GPUs    cards.GPUs // the monitored GPUs; nil if none are monitored
	Signals <-chan os.Signal
	// Renew replaces Checks and GPUs for another attempt in this process, because theirs end with each
	// attempt. It is nil if they can be used again.
	Renew func(*Config) error
	// Access provides access to the run directory.
	Access signal.Access
	// Network is the network by which workers connect to the head. It is nil for TCP.
	Network lifeline.Network
	// Children starts the daemon's children. It is nil if they are processes.
	Children process.Starter
	Play     Play
	// Began is the start of the first attempt of this launch, as far as this process knows. The
	// deadline is counted from there, or from the daemon's start if it is zero.
	Began   time.Time
	Earlier Earlier
}

// Starter returns the starter of the daemon's children.
func (m Means) Starter() (process.Starter, error) {
	if m.Children != nil {
		return m.Children, nil
	}
	super, err := process.NewSupervisor(roles.JobVariables())
	if err != nil {
		return nil, err
	}
	super.AdoptOrphans()
	return super.Starter(), nil
}

// Earlier is the information that earlier attempts of the same launch leave to this one. Later
// attempts come last.
type Earlier struct {
	Unfit []signal.DroppedRank // nodes with a fault, which only stand by
	Lost  []signal.DroppedRank // nodes whose daemons were lost in the last attempt
	// Failed are the failures of all earlier attempts.
	Failed []signal.FailedRecord
}

// causesTime is the timeout for reading the result of the job's previous start.
const causesTime = 2 * time.Second

// Causes returns the failures of the earlier attempts of this launch. If the job was restarted by
// its launcher, it adds the cause of the last attempt before that, if it can be read.
func (c *Config) Causes() []signal.FailedRecord {
	if c.Identity.Restart == 0 {
		return c.Earlier.Failed
	}
	place := c.Place()
	last := c.Identity
	last.Restart, last.Attempt = last.Restart-1, 0
	place.Run = last.RunName()
	ctx, cancel := context.WithTimeoutCause(context.Background(), causesTime, health.ErrDeadline)
	defer cancel()
	result, err := pause.Bounded(ctx, 0, func() (signal.Result, error) { return place.LastResult(ctx) })
	if err != nil || result.Cause == nil {
		return c.Earlier.Failed
	}
	return append(slices.Clip(c.Earlier.Failed), *result.Cause)
}

// AllUnfit returns the sorted indices of the nodes that the next attempt must not use if this one
// ends with the given failures.
func (e Earlier) AllUnfit(failures []signal.FailedRecord) []int {
	ranks := health.Unfit(failures...)
	for _, dropped := range e.Unfit {
		ranks = append(ranks, dropped.Rank)
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// After returns what an attempt that ends with the given failures leaves to the next one.
func (e Earlier) After(failures []signal.FailedRecord, hostOf func(rank int) string) Earlier {
	why := func(rank int) string {
		for _, failure := range failures {
			if failure.Rank == rank || slices.Contains(failure.Lost, rank) {
				return failure.What
			}
		}
		return ""
	}
	next := Earlier{Unfit: slices.Clone(e.Unfit), Failed: slices.Concat(e.Failed, failures)}
	for _, rank := range e.AllUnfit(failures) {
		if !slices.ContainsFunc(e.Unfit, func(d signal.DroppedRank) bool { return d.Rank == rank }) {
			next.Unfit = append(next.Unfit, signal.DroppedRank{Rank: rank, Host: hostOf(rank), Why: why(rank)})
		}
	}
	for _, rank := range health.Missed(failures...) {
		next.Lost = append(next.Lost, signal.DroppedRank{Rank: rank, Host: hostOf(rank), Why: why(rank)})
	}
	return next
}

// Play replaces a node and the processes of ranks in a simulation. The zero value means no
// simulation.
type Play struct {
	Node  binding.Node
	Ranks func(ctx context.Context, meet *meeting.Node, of []ranks.Rank) error // runs until ctx ends
}

// Layout returns the resources of this node for ranks.
func (p Play) Layout(gpus gpu.Topology, lookup func(name string) (value string, set bool)) (binding.Node, error) {
	if p.Ranks != nil {
		return p.Node, nil
	}
	return binding.Discover("/", gpus, lookup)
}

// Output configures the output of a daemon.
type Output struct {
	Files   Files
	Verbose bool
	JSONLog bool
	// LargeLog is the size in bytes from which on a warning about a child's log is printed. 0 means 1
	// GiB.
	LargeLog int64
	// ShareStats makes the head print at the end how many calls to the shared file system were made.
	ShareStats bool
	Shown      shown.Config
}

// Files are the daemon's own standard streams. The driver writes to its standard output.
type Files struct{ In, Out, Err *os.File }

// Sandbox configures the sandboxes.
type Sandbox struct {
	Command string        // run by /bin/sh on every node; empty if this daemon starts no sandbox
	Step    bool          // another step of the job starts the sandboxes
	Ready   *health.Probe // nil if a sandbox is ready once it runs
	Require gate.Require
}

// Wanted reports whether the gate waits for sandboxes.
func (s Sandbox) Wanted() bool { return s.Command != "" || s.Step }

// Times are the timeouts. All are positive.
type Times struct {
	Join        time.Duration // from the start until all nodes have joined
	Setup       time.Duration
	Sandbox     time.Duration
	Service     time.Duration // from the start of a head's or worker's service until it is up
	Peer        time.Duration // from a peer's death until the job ends
	Share       time.Duration // of an unresponsive shared file system, once the job runs and while all peer links work; 0: no longer than Peer
	Settle      time.Duration // how long the framework must list the same nodes
	DriverGrace time.Duration // from TERM to KILL, unless the job must end sooner
	StopGrace   time.Duration // the same for services and sandbox, after the driver has ended
	Deadline    time.Duration // of the whole job, from the start of its head; 0: none
}

// DefaultTimes returns the default timeouts, which --help shows. The grace periods add up to less
// than health.EndTime.
func DefaultTimes() Times {
	return Times{
		Join:        2 * time.Minute,
		Setup:       10 * time.Minute,
		Sandbox:     5 * time.Minute,
		Service:     5 * time.Minute,
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
	if c.Sandbox.Command != "" && c.Sandbox.Step {
		return fmt.Errorf("cannot both run a sandbox (--sandbox-cmd) and wait for one of another step (--sandbox-step): give one")
	}
	if size := c.Team.Of(c.Identity.Size).Min; c.Sandbox.Require.Exceeds(size) {
		return fmt.Errorf("cannot require %s sandboxes: the job has %d nodes", c.Sandbox.Require, size)
	}
	if err := c.World.validate(c.Driver); err != nil {
		return err
	}
	if err := c.validateLauncher(); err != nil {
		return err
	}
	if err := c.After.validate(); err != nil {
		return err
	}
	return c.Times.validate()
}

// validateLauncher returns an error if the driver is torchrun or a similar launcher that would
// start several worlds or leave nodes without work.
func (c *Config) validateLauncher() error {
	nodes, w := c.Team.Of(c.Identity.Size).Max, c.World
	err := ranks.CheckCommand(c.Driver, nodes, w.Wanted())
	one := w.Total == 1 || w.PerNode == "1" || !w.Wanted()
	if err == nil || w.AllowLauncher || nodes == 1 && one {
		return nil
	}
	if !w.Wanted() && (c.Framework.Serves() || c.Sandbox.Command != "" || c.Sandbox.Step) {
		return nil // the other nodes have work
	}
	return err
}

// Bounds returns the timeouts of the phases, with the flags that set them.
func (c *Config) Bounds() map[string]advice.Bound {
	bounds := map[string]advice.Bound{
		"join": {Flag: "join-timeout", Time: c.Times.Join}, "check": {Flag: "setup-timeout", Time: c.Times.Setup},
		"sandbox": {Flag: "sandbox-timeout", Time: c.Times.Sandbox}, "head": {Flag: "service-timeout", Time: c.Times.Service},
		"workers": {Flag: "service-timeout", Time: c.Times.Service},
	}
	if c.Setup == "" && c.Checks != nil {
		bounds["check"] = advice.Bound{Flag: "check-timeout", Time: c.Checks.Longest()}
	}
	return bounds
}

// Place returns the location of the run directory, and the identity of this node in it.
func (c *Config) Place() signal.Place {
	id := c.Identity
	return signal.Place{LogDir: c.LogDir, Run: id.RunName(), Key: id.Key, Rank: id.Rank, Size: id.Size, Host: id.Host, Access: c.Access}
}

// Outwaits reports whether an unresponsive shared file system is tolerated longer than an
// unresponsive peer.
func (t Times) Outwaits() bool { return t.Share > t.Peer }

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
		{"deadline", t.Deadline, 0},
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
	mostStopGrace   = health.EndTime / 2
)

// GraceOfDriver returns the driver's grace period after TERM. After a failure, unless the job was
// asked to end (gentle), it is at most the time that the driver has when Slurm ends the job.
func (t Times) GraceOfDriver(gentle bool) time.Duration {
	if gentle {
		return t.DriverGrace
	}
	return min(t.DriverGrace, health.EndTime-t.StopGrace)
}

// LineBeat returns the interval of heartbeats on a peer link, for any number of nodes.
func (t Times) LineBeat() time.Duration { return health.HeadTempo(t.Peer, 1).Beat }

// AbortGrace is the grace period of services between TERM and KILL after a failure. Results that
// they could save in a longer time are lost already.
const AbortGrace = 2 * time.Second

// GraceOfOthers returns the grace period after TERM of all children except the driver.
func (t Times) GraceOfOthers(failed bool) time.Duration {
	if failed {
		return min(t.StopGrace, AbortGrace)
	}
	return t.StopGrace
}

// restful is the number of peer timeouts between two polls of a worker, and between two renames of
// its heartbeat file, while a peer link notifies it of all changes.
const restful = 4

// Rest returns the interval between two polls of a worker, and between two renames of its heartbeat
// file, while a peer link notifies it of all changes.
func (t Times) Rest() time.Duration { return restful * t.Peer }

// ComeBack returns the time within which a lost daemon must return for the next attempt, if the
// launcher is not known to restart daemons.
func (t Times) ComeBack() time.Duration { return 3 * t.Peer }

// Checks runs the checks of this node.
type Checks interface {
	// Await repeats the checks until no check has to wait any more, or ctx ends. It reports what it
	// waits for to progress.
	Await(ctx context.Context, progress func(check.Report)) check.Report
	// Judge applies the policy in force to findings of other nodes.
	Judge(findings []check.Finding) []check.Finding
	// Longest returns the maximum duration of Await.
	Longest() time.Duration
}

// Checked reports whether nodes publish that they have passed their checks.
func (c *Config) Checked() bool { return c.Setup != "" || c.Checks != nil }

// CheckTime returns the time within which a node must have passed its checks.
func (c *Config) CheckTime() time.Duration {
	within := time.Duration(0)
	if c.Setup != "" {
		within += c.Times.Setup
	}
	if c.Checks != nil {
		within += c.Checks.Longest()
	}
	return within
}

// SandboxTime returns how long the gate waits for sandboxes if the job has run for age. The
// sandboxes of another step start with the job, the others when their nodes have passed their
// checks.
func (c *Config) SandboxTime(age time.Duration) time.Duration {
	if c.Sandbox.Step {
		return max(0, c.Times.Sandbox-age)
	}
	return c.CheckTime() + c.Times.Sandbox
}

// Spares reports whether the job can run without some of its nodes.
func (c *Config) Spares() bool { return c.Team.Of(c.Identity.Size).Min < c.Identity.Size }

// LifelineMode selects whether workers connect to the head.
type LifelineMode string

// The modes of --lifeline. The empty mode means auto.
const (
	LifelineAuto LifelineMode = "auto" // if a connection can be made; otherwise heartbeat files replace it
	LifelineOn   LifelineMode = "on"   // a worker that cannot connect fails
	LifelineOff  LifelineMode = "off"  // only heartbeat files
)

// LifelineModes are the modes that a user can give.
var LifelineModes = []string{string(LifelineAuto), string(LifelineOn), string(LifelineOff)}
