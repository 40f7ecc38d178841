package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/daemon/gpumonitor"
	"github.com/bringupd/bringupd/pkg/daemon/telemetry"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/advice"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/membership/gate"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Config is the resolved and validated configuration of a daemon. It must be the same on all nodes,
// which the digest verifies; fields marked digest:"-" may differ from node to node.
type Config struct {
	Identity roles.Identity `digest:"-"`
	LogDir   string         `digest:"-"` // absolute; other nodes may mount it elsewhere
	Program  string         `digest:"-"` // version of this bringupd
	Driver   []string
	// World configures the ranks, if the driver is run as the ranks of a world.
	World RankOptions
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
	Deps        `digest:"-"`
	Output      `digest:"-"`
}

// Deps are the dependencies of a daemon on its node.
type Deps struct {
	// Address returns the address at which peers reach this node. It is called when the address is
	// needed.
	Address func() (string, error)
	TempDir string // local to the node; each attempt gets a directory in it
	Environ []string
	Checks  Checks          // nil if there are no checks
	GPUs    gpumonitor.GPUs // the monitored GPUs; nil if none are monitored
	Signals <-chan os.Signal
	// RenewChecks replaces Checks and GPUs for another attempt in this process, because theirs end
	// with each attempt. It is nil if they can be used again.
	RenewChecks func(*Config) error
	// Access provides access to the run directory.
	Access signal.Access
	// Network is the network by which workers connect to the head. It is nil for TCP.
	Network peerlink.Network
	// ChildrenStarter starts the daemon's children. It is nil if they are processes.
	ChildrenStarter process.Starter
	Simulation      SimHooks
	// FirstStart is the start of the first attempt of this launch, as far as this process knows. The
	// deadline is counted from there, or from the daemon's start if it is zero.
	FirstStart time.Time
	Previous   PreviousAttempts
}

// NewChildStarter returns the starter of the daemon's children.
func (m Deps) NewChildStarter() (process.Starter, error) {
	if m.ChildrenStarter != nil {
		return m.ChildrenStarter, nil
	}
	super, err := process.NewSupervisor(roles.JobVariables())
	if err != nil {
		return nil, err
	}
	super.AdoptOrphans()
	return super.AsStarter(), nil
}

// PreviousAttempts is the information that earlier attempts of the same launch leave to this one.
// Later attempts come last.
type PreviousAttempts struct {
	UnfitNodes []signal.DroppedNode // nodes with a fault, which only stand by
	LostNodes  []signal.DroppedNode // nodes whose daemons were lost in the last attempt
	// Failures are the failures of all earlier attempts.
	Failures []signal.FailureRecord
}

// causesTimeout is the timeout for reading the result of the job's previous start.
const causesTimeout = 2 * time.Second

// EarlierFailures returns the failures of the earlier attempts of this launch. If the job was
// restarted by its launcher, it adds the cause of the last attempt before that, if it can be read.
func (c *Config) EarlierFailures() []signal.FailureRecord {
	if c.Identity.Restart == 0 {
		return c.Previous.Failures
	}
	place := c.RunLocation()
	last := c.Identity
	last.Restart, last.Attempt = last.Restart-1, 0
	place.Run = last.RunName()
	ctx, cancel := context.WithTimeoutCause(context.Background(), causesTimeout, health.ErrDeadline)
	defer cancel()
	result, err := ctxutil.CallBounded(ctx, 0, func() (signal.Result, error) { return place.LastResult(ctx) })
	if err != nil || result.Cause == nil {
		return c.Previous.Failures
	}
	return append(slices.Clip(c.Previous.Failures), *result.Cause)
}

// AllUnfitNodes returns the sorted indices of the nodes that the next attempt must not use if this
// one ends with the given failures.
func (e PreviousAttempts) AllUnfitNodes(failures []signal.FailureRecord) []int {
	nodes := health.UnfitNodes(failures...)
	for _, dropped := range e.UnfitNodes {
		nodes = append(nodes, dropped.NodeIndex)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// AfterAttempt returns what an attempt that ends with the given failures leaves to the next one.
func (e PreviousAttempts) AfterAttempt(failures []signal.FailureRecord, hostOf func(node int) string) PreviousAttempts {
	why := func(node int) string {
		for _, failure := range failures {
			if failure.NodeIndex == node || slices.Contains(failure.LostNodes, node) {
				return failure.Message
			}
		}
		return ""
	}
	next := PreviousAttempts{UnfitNodes: slices.Clone(e.UnfitNodes), Failures: slices.Concat(e.Failures, failures)}
	for _, node := range e.AllUnfitNodes(failures) {
		if !slices.ContainsFunc(e.UnfitNodes, func(d signal.DroppedNode) bool { return d.NodeIndex == node }) {
			next.UnfitNodes = append(next.UnfitNodes, signal.DroppedNode{NodeIndex: node, Host: hostOf(node), Reason: why(node)})
		}
	}
	for _, node := range health.LostNodes(failures...) {
		next.LostNodes = append(next.LostNodes, signal.DroppedNode{NodeIndex: node, Host: hostOf(node), Reason: why(node)})
	}
	return next
}

// SimHooks replaces a node and the processes of ranks in a simulation. The zero value means no
// simulation.
type SimHooks struct {
	Node affinity.Node
	// runs until ctx ends
	RunRanks func(ctx context.Context, meet *rendezvous.Node, of []ranks.Rank) error
}

// NodeResources returns the resources of this node for ranks.
func (p SimHooks) NodeResources(gpus gpu.Topology, lookup func(name string) (value string, set bool)) (affinity.Node, error) {
	if p.RunRanks != nil {
		return p.Node, nil
	}
	return affinity.DiscoverNode("/", gpus, lookup)
}

// Output configures the output of a daemon.
type Output struct {
	Streams Streams
	Verbose bool
	JSONLog bool
	// LargeLogBytes is the size in bytes from which on a warning about a child's log is printed. 0
	// means 1 GiB.
	LargeLogBytes int64
	// ShareStats makes the head print at the end how many calls to the shared file system were made.
	ShareStats bool
	Telemetry  telemetry.Config
}

// Streams are the daemon's own standard streams. The driver writes to its standard output.
type Streams struct{ In, Out, Err *os.File }

// Sandbox configures the sandboxes.
type Sandbox struct {
	Command string        // run by /bin/sh on every node; empty if this daemon starts no sandbox
	Step    bool          // another step of the job starts the sandboxes
	Ready   *health.Probe // nil if a sandbox is ready once it runs
	Require gate.SandboxQuorum
}

// IsRequested reports whether the gate waits for sandboxes.
func (s Sandbox) IsRequested() bool { return s.Command != "" || s.Step }

// Timeouts are the timeouts. All are positive.
type Timeouts struct {
	Join    time.Duration // from the start until all nodes have joined
	Setup   time.Duration
	Sandbox time.Duration
	Service time.Duration // from the start of a head's or worker's service until it is up
	Peer    time.Duration // from a peer's death until the job ends
	// of an unresponsive shared file system, once the job runs and while all peer links work; 0: no
	// longer than Peer
	Share       time.Duration
	Settle      time.Duration // how long the framework must list the same nodes
	DriverGrace time.Duration // from TERM to KILL, unless the job must end sooner
	StopGrace   time.Duration // the same for services and sandbox, after the driver has ended
	Deadline    time.Duration // of the whole job, from the start of its head; 0: none
}

// DefaultTimeouts returns the default timeouts, which --help shows. The grace periods add up to
// less than health.FinalTermTimeout.
func DefaultTimeouts() Timeouts {
	return Timeouts{
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
	if size := c.Team.ForSize(c.Identity.Size).Min; c.Sandbox.Require.ExceedsSize(size) {
		return fmt.Errorf("cannot require %s sandboxes: the job has %d nodes", c.Sandbox.Require, size)
	}
	if err := c.World.validateRanks(c.Driver); err != nil {
		return err
	}
	if err := c.validateLauncher(); err != nil {
		return err
	}
	if err := c.After.validateRanges(); err != nil {
		return err
	}
	return c.Times.validateRanges()
}

// validateLauncher returns an error if the driver is torchrun or a similar launcher that would
// start several worlds or leave nodes without work.
func (c *Config) validateLauncher() error {
	nodes, w := c.Team.ForSize(c.Identity.Size).Max, c.World
	err := ranks.CheckCommand(c.Driver, nodes, w.IsRequested())
	one := w.Total == 1 || w.PerNode == "1" || !w.IsRequested()
	if err == nil || w.AllowLauncher || nodes == 1 && one {
		return nil
	}
	if !w.IsRequested() && (c.Framework.HasServices() || c.Sandbox.Command != "" || c.Sandbox.Step) {
		return nil // the other nodes have work
	}
	return err
}

// PhaseTimeouts returns the timeouts of the phases, with the flags that set them.
func (c *Config) PhaseTimeouts() map[string]advice.PhaseTimeout {
	bounds := map[string]advice.PhaseTimeout{
		"join": {Flag: "join-timeout", Timeout: c.Times.Join}, "check": {Flag: "setup-timeout", Timeout: c.Times.Setup},
		"sandbox": {Flag: "sandbox-timeout", Timeout: c.Times.Sandbox}, "head": {Flag: "service-timeout", Timeout: c.Times.Service},
		"workers": {Flag: "service-timeout", Timeout: c.Times.Service},
	}
	if c.Setup == "" && c.Checks != nil {
		bounds["check"] = advice.PhaseTimeout{Flag: "check-timeout", Timeout: c.Checks.MaxDuration()}
	}
	return bounds
}

// RunLocation returns the location of the run directory, and the identity of this node in it.
func (c *Config) RunLocation() signal.Location {
	id := c.Identity
	return signal.Location{LogDir: c.LogDir, Run: id.RunName(), Key: id.LaunchKey, NodeIndex: id.NodeIndex, Size: id.Size, Host: id.Host, Access: c.Access}
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
		{"driver-grace", t.DriverGrace, maxDriverGrace, "a job that is told to end should"},
		{"stop-grace", t.StopGrace, maxStopGrace, "Slurm kills the job 30 s after TERM, and the driver has its grace first"},
	} {
		if row.d > row.most {
			return fmt.Errorf("cannot use --%s=%s: give at most %s, because %s", row.flag, row.d, row.most, row.why)
		}
	}
	return nil
}

const (
	maxDriverGrace = time.Hour
	maxStopGrace   = health.FinalTermTimeout / 2
)

// DriverGracePeriod returns the driver's grace period after TERM. After a failure, unless the job
// was asked to end (gentle), it is at most the time that the driver has when Slurm ends the job.
func (t Timeouts) DriverGracePeriod(gentle bool) time.Duration {
	if gentle {
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

// relaxedPollFactor is the number of peer timeouts between two polls of a worker, and between two
// renames of its heartbeat file, while a peer link notifies it of all changes.
const relaxedPollFactor = 4

// RelaxedPollInterval returns the interval between two polls of a worker, and between two renames
// of its heartbeat file, while a peer link notifies it of all changes.
func (t Timeouts) RelaxedPollInterval() time.Duration { return relaxedPollFactor * t.Peer }

// DaemonReturnTimeout returns the time within which a lost daemon must return for the next attempt,
// if the launcher is not known to restart daemons.
func (t Timeouts) DaemonReturnTimeout() time.Duration { return 3 * t.Peer }

// Checks runs the checks of this node.
type Checks interface {
	// AwaitReady repeats the checks until no check has to wait any more, or ctx ends. It reports what
	// it waits for to progress.
	AwaitReady(ctx context.Context, progress func(check.Report)) check.Report
	// ApplyPolicy applies the policy in force to findings of other nodes.
	ApplyPolicy(findings []check.Finding) []check.Finding
	// MaxDuration returns the maximum duration of Await.
	MaxDuration() time.Duration
}

// HasNodeChecks reports whether nodes publish that they have passed their checks.
func (c *Config) HasNodeChecks() bool { return c.Setup != "" || c.Checks != nil }

// CheckTimeout returns the time within which a node must have passed its checks.
func (c *Config) CheckTimeout() time.Duration {
	within := time.Duration(0)
	if c.Setup != "" {
		within += c.Times.Setup
	}
	if c.Checks != nil {
		within += c.Checks.MaxDuration()
	}
	return within
}

// SandboxTimeout returns how long the gate waits for sandboxes if the job has run for age. The
// sandboxes of another step start with the job, the others when their nodes have passed their
// checks.
func (c *Config) SandboxTimeout(age time.Duration) time.Duration {
	if c.Sandbox.Step {
		return max(0, c.Times.Sandbox-age)
	}
	return c.CheckTimeout() + c.Times.Sandbox
}

// HasSpares reports whether the job can run without some of its nodes.
func (c *Config) HasSpares() bool { return c.Team.ForSize(c.Identity.Size).Min < c.Identity.Size }

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
