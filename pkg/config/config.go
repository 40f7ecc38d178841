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

// Config is everything a daemon was told, resolved and checked. All nodes must
// be told the same, as their digest tells; fields that are marked digest:"-" may
// differ from node to node.
type Config struct {
	Identity roles.Identity `digest:"-"`
	LogDir   string         `digest:"-"` // absolute; it may be mounted elsewhere on another node
	Program  string         `digest:"-"` // version of this bringupd
	Driver   []string
	// World is where the driver is what each rank of a world runs.
	World World
	// Team is how many of the nodes the driver gets; the zero value: all.
	Team      team.Bounds
	Framework framework.Framework
	Setup     string // run by /bin/sh on every node before anything else
	// CheckPolicy is what was told of the checks, which are made by Checks.
	CheckPolicy any
	Sandbox     Sandbox
	Lifeline    LifelineMode // whether workers connect to the head
	Times       Times
	After       After
	Means       `digest:"-"`
	Output      `digest:"-"`
}

// Means are what a daemon works with on its node.
type Means struct {
	// Address returns where peers reach this node; it is asked when needed.
	Address func() (string, error)
	TempDir string // node-local; each attempt gets a directory in it
	Environ []string
	Checks  Checks     // nil for none
	GPUs    cards.GPUs // that are watched; nil for nothing
	Signals <-chan os.Signal
	// Renew makes Checks and GPUs anew for another attempt of this process: those of one end with it. nil: they need it not.
	Renew func(*Config) error
	// Access is how the run directory is reached.
	Access signal.Access
	// Network is how workers connect to the head; nil for TCP.
	Network lifeline.Network
	// Children starts the daemon's children; nil: as processes.
	Children process.Starter
	Play     Play
	// Began is when the first attempt of this launch did, as far as this process knows: the
	// deadline counts from there; zero: from the daemon's start.
	Began   time.Time
	Earlier Earlier
}

// Starter returns what starts the daemon's children.
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

// Earlier is what earlier attempts of the same launch have left to this one. A later one comes last.
type Earlier struct {
	Unfit []signal.DroppedRank // with which something was wrong: they stand by
	Lost  []signal.DroppedRank // whose daemons the last one has missed
	// Failed are the failures of all of them.
	Failed []signal.FailedRecord
}

// causesTime is for how long the result of the job's last start may be read.
const causesTime = 2 * time.Second

// Causes returns the failures of the earlier attempts of this launch and, of a job that was started
// anew, the cause of the last attempt before that, if it can be read.
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

// AllUnfit are the ranks, in order, that the next attempt does without if this one ends by these failures.
func (e Earlier) AllUnfit(failures []signal.FailedRecord) []int {
	ranks := health.Unfit(failures...)
	for _, dropped := range e.Unfit {
		ranks = append(ranks, dropped.Rank)
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}

// After is what an attempt leaves to the next one that ends by these failures.
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

// Play is what a simulation has in place of a node and of the processes of ranks; the zero value: it is none.
type Play struct {
	Node  binding.Node
	Ranks func(ctx context.Context, meet *meeting.Node, of []ranks.Rank) error // until ctx ends
}

// Layout returns what there is on this node for ranks.
func (p Play) Layout(gpus gpu.Topology, lookup func(name string) (value string, set bool)) (binding.Node, error) {
	if p.Ranks != nil {
		return p.Node, nil
	}
	return binding.Discover("/", gpus, lookup)
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

// Sandbox is what was told of the sandboxes.
type Sandbox struct {
	Command string        // run by /bin/sh on every node; empty: no sandbox here
	Step    bool          // the sandbox is a step of its own: wait for it only
	Ready   *health.Probe // nil: ready once it runs
	Require gate.Require
}

// Wanted tells whether there is a sandbox to wait for.
func (s Sandbox) Wanted() bool { return s.Command != "" || s.Step }

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
	Deadline    time.Duration // of the whole job, from the start of its head; 0: none
}

// DefaultTimes are the deadlines that --help shows. The graces add up to less
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

// validateLauncher returns an error if the driver is torchrun or its like, and would make several
// worlds or leave nodes without work.
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

// Bounds are the deadlines of the phases, with the flags that set them.
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

// Place is where the run directory is, and who this node is there.
func (c *Config) Place() signal.Place {
	id := c.Identity
	return signal.Place{LogDir: c.LogDir, Run: id.RunName(), Key: id.Key, Rank: id.Rank, Size: id.Size, Host: id.Host, Access: c.Access}
}

// Outwaits tells whether a share that hangs is waited for longer than for a peer.
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

// GraceOfDriver is how long the driver has after TERM. Where the run has failed,
// and is not told to end, it is no longer than where Slurm ends the job.
func (t Times) GraceOfDriver(gentle bool) time.Duration {
	if gentle {
		return t.DriverGrace
	}
	return min(t.DriverGrace, health.EndTime-t.StopGrace)
}

// LineBeat is the pace of beats over a lifeline, however many nodes there are.
func (t Times) LineBeat() time.Duration { return health.HeadTempo(t.Peer, 1).Beat }

// AbortGrace is what services get between TERM and KILL where the run has
// failed: what they would save in more time is lost already.
const AbortGrace = 2 * time.Second

// GraceOfOthers is how long all but the driver have after TERM.
func (t Times) GraceOfOthers(failed bool) time.Duration {
	if failed {
		return min(t.StopGrace, AbortGrace)
	}
	return t.StopGrace
}

// restful is how many peer timeouts lie between two looks of a worker, and
// between two beats by files, while a lifeline tells of all that happens.
const restful = 4

// Rest is how long lies between two looks of a worker, and between two beats by
// files, while a lifeline tells of all that happens.
func (t Times) Rest() time.Duration { return restful * t.Peer }

// ComeBack is how long a daemon that was lost has to come back in the next attempt, where the launcher is not
// known to start one anew.
func (t Times) ComeBack() time.Duration { return 3 * t.Peer }

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

// Checked tells whether nodes say that they are fit.
func (c *Config) Checked() bool { return c.Setup != "" || c.Checks != nil }

// CheckTime is how long a node may take until it has said so.
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

// SandboxTime returns how long the gate waits for sandboxes when the job has run for age. Those of another
// step start with the job, the others when their nodes have passed their checks.
func (c *Config) SandboxTime(age time.Duration) time.Duration {
	if c.Sandbox.Step {
		return max(0, c.Times.Sandbox-age)
	}
	return c.CheckTime() + c.Times.Sandbox
}

// Spares tells whether the job can do without some of its nodes.
func (c *Config) Spares() bool { return c.Team.Of(c.Identity.Size).Min < c.Identity.Size }

// LifelineMode says whether workers hold a connection to the head.
type LifelineMode string

// The modes of --lifeline; without one, auto is meant.
const (
	LifelineAuto LifelineMode = "auto" // where one can be made; beat files replace it elsewhere
	LifelineOn   LifelineMode = "on"   // a worker that can't make one fails
	LifelineOff  LifelineMode = "off"  // beat files alone
)

// LifelineModes are what a user may ask for.
var LifelineModes = []string{string(LifelineAuto), string(LifelineOn), string(LifelineOff)}
