package deps

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
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
func (c Config) DescribePlan(role roles.DaemonRole) (lines []string) {
	id, sandbox, after := c.Identity, c.Sandbox, c.After
	add := func(applies bool, format string, args ...any) {
		if applies {
			lines = append(lines, fmt.Sprintf(format, args...))
		}
	}
	add(true, "node %d of %d on %s, launched by %s, is %s", id.NodeIndex, id.Size, id.Host, id.Launcher, role)
	add(true, "join: meet %d nodes in %s within %s", id.Size, filepath.Join(c.LogDir, id.RunName()), c.Times.Join)
	add(c.AssignsPlaces(), "team: %s of them are the driver's, as soon as they have met and are "+
		"checked; the others stand by", c.Team.ForSize(id.Size))
	add(c.Setup != "", "check: run %q within %s", c.Setup, c.Times.Start)
	if c.Checks != nil {
		add(true, "check: see within %s whether the node is fit", c.Checks.MaxDuration())
	}
	add(sandbox.Step, "sandbox: wait for %s of another step within %s", sandbox.Require, c.Times.Start)
	ready := "ready once it runs"
	if sandbox.Ready != nil {
		ready = fmt.Sprintf("ready by %s within %s", sandbox.Ready, c.Times.Start)
	}
	add(sandbox.Command != "" && !sandbox.Step, "sandbox: run %q, %s; the gate needs %s",
		sandbox.Command, ready, sandbox.Require)
	for _, level := range roles.StartLevels(c.Roles.Definitions) {
		add(true, "roles: start %s (bringupd roles --dry-run=FILE shows their places)", strings.Join(level, ", "))
	}
	lines = slices.Concat(lines, c.planServices(), []string{"gate: open when all of this is proven"})
	switch {
	case c.Roles.AreGiven():
		var primaries []string
		for _, d := range c.Roles.Definitions {
			if d.Primary {
				primaries = append(primaries, d.Name)
			}
		}
		add(primaries == nil, "end: no role is primary; the job stays up until it is stopped")
		add(primaries != nil, "end: when all primary roles have ended with 0, or one fails: %s",
			strings.Join(primaries, ", "))
	case len(c.Driver) == 0:
		add(true, "driver: none; the job stays up until it is stopped")
	case c.World.IsRequested():
		lines = append(lines, c.World.DescribePlan(c.Driver)...)
	default:
		add(true, "driver: node 0 runs %s; its exit code is the job's", strings.Join(c.Driver, " "))
	}
	add(c.Times.Deadline > 0, "deadline: the job ends with %d, %s after its start",
		health.OutcomeOfKind(health.JobDeadlinePassed).Code, c.Times.Deadline)
	staysUp := after.Clean == config.CleanNone && after.Look > 0
	add(staysUp, "clean: services and sandboxes stay for %s after the driver, temporary directories "+
		"for good", after.Look)
	add(!staysUp && after.Clean.KeepsDirectories(), "clean: the temporary directories stay")
	add(after.Restarts > 0, "restarts: at most %d, after failures that --restart-on=%s selects: the "+
		"first at once, further ones after 1s or more",
		after.Restarts, cmp.Or(after.Rules.On, config.RestartOnNode))
	add(after.Requeue.OnFailure, "requeue: at most %d, of a job that fails and may be tried again", after.Requeue.Most)
	return lines
}

func (c Config) planServices() (lines []string) {
	if !c.Framework.HasServices() {
		return nil
	}
	add := func(who string, service *framework.Service, err error) {
		switch {
		case err != nil:
			lines = append(lines, fmt.Sprintf("%s can't: %v", who, err))
		case service != nil:
			lines = append(lines, fmt.Sprintf("%s runs %s", who, strings.Join(service.Argv, " ")))
		}
	}
	self := framework.Node{
		RunName: c.Identity.RunName(), TeamIndex: 0, Size: c.Identity.Size, Host: c.Identity.HostOf(0),
		Address: "HEAD-ADDRESS", TempDir: "TEMP-DIR", CPUs: c.Identity.CPUs, GPUs: c.Identity.GPUs,
	}
	head, endpoint, err := c.Framework.HeadService(self)
	add("head: node 0", head, err)
	if c.Identity.Size > 1 {
		self.TeamIndex, self.LaunchIndex, self.Host = 1, 1, c.Identity.HostOf(1)
		worker, err := c.Framework.WorkerService(self, endpoint)
		add("workers: node 1, and likewise the others,", worker, err)
	}
	return lines
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
		Framework: c.Framework.Name(), Phases: []record.Phase{record.PhaseJoin},
		NodesNeeded:   c.Team.ForSize(c.Identity.Size).Min,
		PhaseTimeouts: map[record.Phase]time.Duration{record.PhaseJoin: c.Times.Join},
		MaxHeartbeatInterval: c.Times.RelaxedPollInterval() + health.HeadHeartbeatTiming(c.Times.Peer,
			c.Identity.Size).HeartbeatInterval,
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
	for _, phase := range []record.Phase{record.PhaseCheck, record.PhaseSandbox, record.PhaseHead,
		record.PhaseWorkers} {
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
	return signal.Location{LogDir: c.LogDir, Run: id.RunName(), Key: id.LaunchKey,
		NodeIndex: id.NodeIndex, Size: id.Size, Host: id.Host, Access: c.Access}
}
