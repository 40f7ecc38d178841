package deps

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/advice"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// DescribePlan describes, one step per line, what this daemon would do. It accesses nothing, so
// paths and ports that are only known later are described in words.
func (c Config) DescribePlan(role roles.DaemonRole) []string {
	id := c.Identity
	lines := []string{
		fmt.Sprintf("node %d of %d on %s, launched by %s, is %s", id.NodeIndex, id.Size, id.Host, id.Launcher, role),
		fmt.Sprintf("join: meet %d nodes in %s within %s", id.Size, filepath.Join(c.LogDir, id.RunName()), c.Times.Join),
	}
	if c.AssignsPlaces() {
		lines = append(lines, fmt.Sprintf("team: %s of them are the driver's, as soon as they have met and are checked; the others stand by",
			c.Team.ForSize(id.Size)))
	}
	if c.Setup != "" {
		lines = append(lines, fmt.Sprintf("check: run %q within %s", c.Setup, c.Times.Start))
	}
	if c.Checks != nil {
		lines = append(lines, fmt.Sprintf("check: see within %s whether the node is fit", c.Checks.MaxDuration()))
	}
	lines = append(lines, c.planSandbox()...)
	lines = append(lines, c.planServices()...)
	lines = append(lines, c.planRoles()...)
	lines = append(lines, "gate: open when all of this is proven")
	lines = append(lines, c.planDriver()...)
	return append(lines, c.planEnd()...)
}

func (c Config) planDriver() []string {
	if c.Roles.AreGiven() {
		return c.planPrimaries()
	}
	if len(c.Driver) == 0 {
		return []string{"driver: none; the job stays up until it is stopped"}
	}
	if c.World.IsRequested() {
		return c.World.DescribePlan(c.Driver)
	}
	return []string{fmt.Sprintf("driver: node 0 runs %s; its exit code is the job's", strings.Join(c.Driver, " "))}
}

// planEnd describes what ends the job besides its driver, and what happens then.
func (c Config) planEnd() (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if c.Times.Deadline > 0 {
		add("deadline: the job ends with %d, %s after its start", health.OutcomeOfKind(health.JobDeadlinePassed).Code, c.Times.Deadline)
	}
	switch {
	case c.After.Clean == config.CleanNone && c.After.Look > 0:
		add("clean: services and sandboxes stay for %s after the driver, temporary directories for good", c.After.Look)
	case c.After.Clean.KeepsDirectories():
		add("clean: the temporary directories stay")
	}
	if c.After.Restarts > 0 {
		add("restarts: at most %d, after failures that --restart-on=%s selects: the first at once, further ones after 1s or more",
			c.After.Restarts, cmp.Or(c.After.Rules.On, config.RestartOnNode))
	}
	if c.After.Requeue.OnFailure {
		add("requeue: at most %d, of a job that fails and may be tried again", c.After.Requeue.Most)
	}
	if c.After.Keep.RemovesRuns() {
		add("earlier runs in %s: yours are removed as --keep=%s says", c.LogDir, c.After.Keep)
	}
	return lines
}

func (c Config) planSandbox() []string {
	switch {
	case c.Sandbox.Step:
		return []string{fmt.Sprintf("sandbox: wait for %s of another step within %s", c.Sandbox.Require, c.Times.Start)}
	case c.Sandbox.Command == "":
		return nil
	case c.Sandbox.Ready == nil:
		return []string{fmt.Sprintf("sandbox: run %q, ready once it runs; the gate needs %s", c.Sandbox.Command, c.Sandbox.Require)}
	}
	return []string{fmt.Sprintf("sandbox: run %q, ready by %s within %s; the gate needs %s",
		c.Sandbox.Command, c.Sandbox.Ready, c.Times.Start, c.Sandbox.Require)}
}

func (c Config) planServices() (lines []string) {
	if !c.Framework.HasServices() {
		return nil
	}
	self := framework.Node{
		RunName: c.Identity.RunName(), TeamIndex: 0, Size: c.Identity.Size, Host: c.Identity.HostOf(0),
		Address: "HEAD-ADDRESS", TempDir: "TEMP-DIR", CPUs: c.Identity.CPUs, GPUs: c.Identity.GPUs,
	}
	head, endpoint, err := c.Framework.HeadService(self)
	lines = append(lines, planService("head: node 0", head, err)...)
	if c.Identity.Size > 1 {
		self.TeamIndex, self.LaunchIndex, self.Host = 1, 1, c.Identity.HostOf(1)
		worker, err := c.Framework.WorkerService(self, endpoint)
		lines = append(lines, planService("workers: node 1, and likewise the others,", worker, err)...)
	}
	return lines
}

func planService(who string, service *framework.Service, err error) []string {
	switch {
	case err != nil:
		return []string{fmt.Sprintf("%s can't: %v", who, err)}
	case service == nil:
		return nil
	}
	return []string{fmt.Sprintf("%s runs %s", who, strings.Join(service.Argv, " "))}
}

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
		Framework: c.Framework.Name(), Phases: []record.Phase{record.PhaseJoin}, NodesNeeded: c.Team.ForSize(c.Identity.Size).Min,
		PhaseTimeouts:        map[record.Phase]time.Duration{record.PhaseJoin: c.Times.Join},
		MaxHeartbeatInterval: c.Times.RelaxedPollInterval() + health.HeadHeartbeatTiming(c.Times.Peer, c.Identity.Size).HeartbeatInterval,
	}
	add := func(step record.Phase, within time.Duration) {
		p.Phases = append(p.Phases, step)
		if within > 0 {
			p.PhaseTimeouts[step] = within
		}
	}
	if c.HasNodeChecks() {
		add(record.PhaseCheck, c.CheckTimeout())
	}
	if c.Sandbox.IsRequested() {
		add(record.PhaseSandbox, c.Times.Start)
		p.SandboxQuorum = c.Sandbox.Require.String()
	}
	if c.Framework.HasServices() {
		add(record.PhaseHead, c.Times.Start)
		add(record.PhaseWorkers, c.Times.Start)
	}
	if len(c.Driver) > 0 {
		add(record.PhaseDriver, 0)
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

// PhaseTimeouts returns the timeouts of the phases, with the flags that set them.
func (c *Config) PhaseTimeouts() map[record.Phase]advice.PhaseTimeout {
	bounds := map[record.Phase]advice.PhaseTimeout{
		record.PhaseJoin: {Flag: "join-timeout", Timeout: c.Times.Join},
	}
	for _, phase := range []record.Phase{record.PhaseCheck, record.PhaseSandbox, record.PhaseHead, record.PhaseWorkers} {
		bounds[phase] = advice.PhaseTimeout{Flag: "start-timeout", Timeout: c.Times.Start}
	}
	return bounds
}

// HasNodeChecks reports whether nodes publish that they have passed their checks.
func (c *Config) HasNodeChecks() bool { return c.Setup != "" || c.Checks != nil }

// CheckTimeout returns the time within which a node must have passed its checks.
func (c *Config) CheckTimeout() time.Duration {
	within := time.Duration(0)
	if c.Setup != "" {
		within += c.Times.Start
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
		return max(0, c.Times.Start-age)
	}
	return c.CheckTimeout() + c.Times.Start
}

// RunLocation returns the location of the run directory, and the identity of this node in it.
func (c *Config) RunLocation() signal.Location {
	id := c.Identity
	return signal.Location{LogDir: c.LogDir, Run: id.RunName(), Key: id.LaunchKey, NodeIndex: id.NodeIndex, Size: id.Size, Host: id.Host, Access: c.Access}
}
