package main

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/console/outputmux"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/membership/gate"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
	"github.com/bringupd/bringupd/pkg/roles"
)

// options are the values of the settings, before they are resolved.
type options struct {
	launchOptions
	cfg           config.Config // values that need no resolution
	framework     string
	configFile    string // the configuration file
	dedicatedHead bool
	frameworks    []framework.Factory
	checks        check.Config
	onFailure     string
	dryRun        bool
	logFormat     string
}

// launchOptions are the settings about the launch and this node's part in it, in addition to the
// launcher's environment.
type launchOptions struct {
	requestedRole string
	overrides     roles.Overrides // except numbers
	nodeIndex     int             // -1: not given
	localSize     int             // given by "bringupd local"; 0: otherwise
	interfaceName string
	gpus, cpus    int // -1 and 0: not given
}

func newOptions() *options {
	o := &options{
		launchOptions: launchOptions{requestedRole: "auto", nodeIndex: -1, gpus: -1},
		framework:     "none", frameworks: allFrameworks(), logFormat: "console", onFailure: "exit", checks: check.DefaultConfig(),
		cfg: config.Config{World: config.RankOptions{LayoutRequest: ranks.LayoutRequest{Order: ranks.ByNode}, PMIx: pmix.Auto, Bind: affinity.AllKinds(), Output: outputmux.AllRanks}, Times: config.DefaultTimeouts(), Lifeline: config.LinkAuto, After: config.PostRun{Backoff: time.Second, Requeue: config.RequeueConfig{Most: 3}, Clean: config.CleanAll, Look: config.DefaultInspectionTime}},
	}
	o.cfg.Sandbox.Require, _ = gate.ParseSandboxQuorum("all")
	return o
}

// The headings under which --help shows flags of several subcommands.
const (
	launchHeading  = "The launch"
	checkHeading   = "The checks"
	bringUpHeading = "The framework"
	resultHeading  = "The result"
	otherHeading   = "Other"
)

// daemonSettings returns all settings of a daemon.
func (o *options) daemonSettings() setting.List {
	all := slices.Concat(o.nodeSettings(), o.worldSettings())
	for _, f := range o.frameworks {
		all = append(all, frameworkSettings(f)...)
	}
	return append(all, o.jobSettings()...)
}

// nodeSettings returns the settings of the launch and of a node's resources. The node's index can
// only be given on the command line, because variables are inherited and the file is the same for
// all nodes. The number of nodes has no variable, because it differs in a job that a driver starts.
func (o *options) nodeSettings() setting.List {
	return slices.Concat(
		setting.AssignCategory(launchHeading,
			setting.NewChoice("role", []string{"auto", "head", "worker", "sandbox"}, &o.requestedRole, "auto (head on rank 0, worker elsewhere), head, worker, or sandbox (a sandbox in a step of its own)"),
			setting.NewNumber("rank", &o.nodeIndex, 0, math.MaxInt32, "this daemon's rank, if no launcher tells it").ExcludeSources(setting.SourceVariable, setting.SourceFile),
			nodeRangeSetting("nnodes", &o.cfg.Team, "how many nodes the driver needs, and may get at most; the others are spares (default: all; "+
				"without a launcher, the number of daemons)").ExcludeSources(setting.SourceVariable),
			runNameSetting("job-id", &o.overrides.JobID, "name of the run, if no launcher names it: the same on all ranks, a new one for every launch"),
			setting.NewText("interface", "NAME", &o.interfaceName, "network interface at whose address the other nodes reach this one (default: that of the route to where the job was launched)"),
			setting.NewChoice("lifeline", config.LinkModes, (*string)(&o.cfg.Lifeline), "connections of the workers to the head, which show a death at once: auto (beat files where none can be made), on (fail there), or off (beat files alone)"),
			setting.NewSwitch("launched-locally", &o.overrides.Local, "").ExcludeSources(setting.SourceVariable, setting.SourceFile).HideFromHelp(),
			setting.NewValue("launched-on", "LIST", &o.overrides.Hosts, func(list string) ([]string, error) { return strings.Split(list, ","), nil },
				func(hosts []string) any { return strings.Join(hosts, ",") }, "").ExcludeSources(setting.SourceVariable, setting.SourceFile).HideFromHelp(),
			setting.NewNumber("launched-of", &o.localSize, 1, maxLocalDaemons, "").ExcludeSources(setting.SourceVariable, setting.SourceFile).HideFromHelp(),
		),
		setting.AssignCategory("Places",
			setting.NewText("log-dir", "DIR", &o.cfg.LogDir, "directory that all nodes share, for the run's records and logs (default: bringupd-logs where the job was submitted)"),
			keepSetting(&o.cfg.After.Keep, "which runs of the log directory stay that are over, when this one has come up: so many (20), or those of the last days (30d) or hours (36h) (default: all)"),
			setting.NewText("temp-dir", "DIR", &o.cfg.TempDir, "node-local directory for private temporaries (default: TMPDIR, or /tmp)"),
			setting.NewText("config", "FILE", &o.configFile, "YAML file with settings, named like the flags, and the driver, as a list").ExcludeSources(setting.SourceFile),
		),
		setting.AssignCategory("The node",
			setting.NewNumber("gpus-per-node", &o.gpus, 0, math.MaxInt16, "GPUs that each node must have and offers (default: as the launcher tells)"),
			setting.NewNumber("cpus-per-node", &o.cpus, 1, math.MaxInt16, "CPUs that each node offers (default: as the launcher tells)"),
			setting.NewText("setup-cmd", "COMMAND", &o.cfg.Setup, "shell command that every node runs first; if it fails, so does the node"),
		),
		setting.AssignCategory(checkHeading, checkSettings(&o.checks)...),
		setting.AssignCategory("The sandbox",
			setting.NewText("sandbox-cmd", "COMMAND", &o.cfg.Sandbox.Command, "shell command of every node's sandbox"),
			probeSetting("sandbox-ready", &o.cfg.Sandbox.Ready, "probe that proves it ready (default: ready as soon as it runs)"),
			quorumSetting("sandbox-require", &o.cfg.Sandbox.Require, "sandboxes that the driver needs: all, any, head (that of rank 0), or a number"),
			setting.NewSwitch("sandbox-step", &o.cfg.Sandbox.Step, "the sandboxes are a step of their own (--role=sandbox): wait for them"),
		),
		setting.AssignCategory(bringUpHeading,
			frameworkSetting(&o.framework),
			setting.NewSwitch("dedicated-head", &o.dedicatedHead, "the head's node runs no worker and offers no GPUs"),
		),
	)
}

const (
	onFailureRequeue = "requeue"
	jsonFormat       = "json"
)

// jobSettings returns the settings of the whole job and of its output.
func (o *options) jobSettings() setting.List {
	t := &o.cfg.Times
	return slices.Concat(
		setting.AssignCategory("Deadlines, as in 90s or 5m",
			setting.NewDuration("deadline", &t.Deadline, "for the whole job, which then ends with 124 (default: none)"),
			setting.NewDuration("join-timeout", &t.Join, "until all nodes have met"),
			setting.NewDuration("setup-timeout", &t.Setup, "for the setup command"),
			setting.NewDuration("sandbox-timeout", &t.Sandbox, "until a sandbox is ready"),
			setting.NewDuration("service-timeout", &t.Service, "until a service of the framework is up"),
			setting.NewDuration("settle", &t.Settle, "how long the framework must list the same nodes before the gate opens"),
			setting.NewDuration("peer-timeout", &t.Peer, "the longest time from a peer's death to the end of the job"),
			setting.NewDuration("share-timeout", &t.Share, "how long a running job goes on while the shared file system does not respond, if every peer link is well"),
			setting.NewDuration("driver-grace", &t.DriverGrace, "between the driver's TERM and its KILL, up to 1h; shortened where Slurm's own KILL comes sooner"),
			setting.NewDuration("stop-grace", &t.StopGrace, "the same for services and sandboxes, which end after the driver; up to 10s"),
		),
		setting.AssignCategory("After a failure",
			setting.NewNumber("restarts", &o.cfg.After.Restarts, 0, 1000, "how often the run may be begun anew within its allocation, on the nodes that are left, where the table of exit codes says yes to a requeue"),
			setting.NewDuration("restart-backoff", &o.cfg.After.Backoff, "the pause before the first restart, up to 1m; it doubles each time, up to 1m"),
			setting.NewChoice("on-failure", []string{"exit", onFailureRequeue}, &o.onFailure,
				"exit, or requeue: have Slurm start the job again without the bad nodes, where the table of exit codes says yes"),
			setting.NewNumber("max-requeues", &o.cfg.After.Requeue.Most, 0, math.MaxInt16, "how often a job may be started again; after that it exits with 69"),
		),
		setting.AssignCategory("After the driver",
			setting.NewChoice("clean", config.CleanupPolicies, (*string)(&o.cfg.After.Clean),
				"what goes when the driver has ended: all, running (the nodes' temporary directories stay), or none (services stay for a look, too)"),
			setting.NewDuration("clean-after", &o.cfg.After.Look, "how long services stay with --clean=none"),
		),
		setting.AssignCategory("Metrics, for Prometheus",
			setting.NewText("metrics-dir", "DIR", &o.cfg.Telemetry.MetricsDir, "node-local directory where each daemon keeps a file for node-exporter's textfile collector; the file is gone when the daemon is"),
			loopbackSetting("metrics-listen", &o.cfg.Telemetry.MetricsListen, "loopback address at which every daemon serves /metrics; with port 0 the log tells the port"),
		),
		setting.AssignCategory(otherHeading,
			setting.NewSwitch("dry-run", &o.dryRun, "print the configuration and the plan, and touch nothing").ExcludeSources(setting.SourceFile),
			setting.NewSwitch("share-stats", &o.cfg.ShareStats, "at the end, have the head print what all nodes have asked of the share"),
			setting.NewSwitch("verbose", &o.cfg.Verbose, "say everything on standard error, on all nodes"),
			setting.NewChoice("log-format", []string{"console", jsonFormat}, &o.logFormat, "format of standard error: console or json"),
		),
	)
}
