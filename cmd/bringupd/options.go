package main

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/gate"
	"github.com/bringupd/bringupd/pkg/output"
	"github.com/bringupd/bringupd/pkg/pmi/pmix"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/setting"
)

// options are the values of the settings, before they are resolved.
type options struct {
	launched
	cfg           config.Config // values that need no resolution
	framework     string
	file          string // the configuration file
	dedicatedHead bool
	frameworks    []framework.Choice
	checks        check.Config
	onFailure     string
	dryRun        bool
	logFormat     string
}

// launched are the settings about the launch and this node's part in it, in addition to the
// launcher's environment.
type launched struct {
	role          string
	asked         roles.Want // except numbers
	rank          int        // -1: not given
	localSize     int        // given by "bringupd local"; 0: otherwise
	interfaceName string
	gpus, cpus    int // -1 and 0: not given
}

func newOptions() *options {
	o := &options{
		launched:  launched{role: "auto", rank: -1, gpus: -1},
		framework: "none", frameworks: frameworks(), logFormat: "console", onFailure: "exit", checks: check.DefaultConfig(),
		cfg: config.Config{World: config.World{Wish: ranks.Wish{Order: ranks.ByNode}, PMIx: pmix.Auto, Bind: binding.All(), Output: output.All}, Times: config.DefaultTimes(), Lifeline: config.LifelineAuto, After: config.After{Backoff: time.Second, Requeue: config.Requeue{Most: 3}, Clean: config.CleanAll, Look: config.DefaultLook}},
	}
	o.cfg.Sandbox.Require, _ = gate.ParseRequire("all")
	return o
}

// The headings under which --help shows flags of several subcommands.
const (
	launchFlags  = "The launch"
	checkFlags   = "The checks"
	bringUpFlags = "The framework"
	resultFlags  = "The result"
	otherFlags   = "Other"
)

// settings returns all settings of a daemon.
func (o *options) settings() setting.List {
	all := slices.Concat(o.ofNode(), o.ofWorld())
	for _, f := range o.frameworks {
		all = append(all, ownSettings(f)...)
	}
	return append(all, o.ofJob()...)
}

// ofNode returns the settings of the launch and of a node's resources. The node's index can only be
// given on the command line, because variables are inherited and the file is the same for all
// nodes. The number of nodes has no variable, because it differs in a job that a driver starts.
func (o *options) ofNode() setting.List {
	return slices.Concat(
		setting.Under(launchFlags,
			setting.Choice("role", []string{"auto", "head", "worker", "sandbox"}, &o.role, "auto (head on rank 0, worker elsewhere), head, worker, or sandbox (a sandbox in a step of its own)"),
			setting.Number("rank", &o.rank, 0, math.MaxInt32, "this daemon's rank, if no launcher tells it").Not(setting.ByVariable, setting.ByFile),
			bounds("nnodes", &o.cfg.Team, "how many nodes the driver needs, and may get at most; the others are spares (default: all; "+
				"without a launcher, the number of daemons)").Not(setting.ByVariable),
			runName("job-id", &o.asked.JobID, "name of the run, if no launcher names it: the same on all ranks, a new one for every launch"),
			setting.Text("interface", "NAME", &o.interfaceName, "network interface at whose address the other nodes reach this one (default: that of the route to where the job was launched)"),
			setting.Choice("lifeline", config.LifelineModes, (*string)(&o.cfg.Lifeline), "connections of the workers to the head, which show a death at once: auto (beat files where none can be made), on (fail there), or off (beat files alone)"),
			setting.Yes("launched-locally", &o.asked.Local, "").Not(setting.ByVariable, setting.ByFile).Hide(),
			setting.Valued("launched-on", "LIST", &o.asked.Hosts, func(list string) ([]string, error) { return strings.Split(list, ","), nil },
				func(hosts []string) any { return strings.Join(hosts, ",") }, "").Not(setting.ByVariable, setting.ByFile).Hide(),
			setting.Number("launched-of", &o.localSize, 1, maxLocal, "").Not(setting.ByVariable, setting.ByFile).Hide(),
		),
		setting.Under("Places",
			setting.Text("log-dir", "DIR", &o.cfg.LogDir, "directory that all nodes share, for the run's records and logs (default: bringupd-logs where the job was submitted)"),
			keeping(&o.cfg.After.Keep, "which runs of the log directory stay that are over, when this one has come up: so many (20), or those of the last days (30d) or hours (36h) (default: all)"),
			setting.Text("temp-dir", "DIR", &o.cfg.TempDir, "node-local directory for private temporaries (default: TMPDIR, or /tmp)"),
			setting.Text("config", "FILE", &o.file, "YAML file with settings, named like the flags, and the driver, as a list").Not(setting.ByFile),
		),
		setting.Under("The node",
			setting.Number("gpus-per-node", &o.gpus, 0, math.MaxInt16, "GPUs that each node must have and offers (default: as the launcher tells)"),
			setting.Number("cpus-per-node", &o.cpus, 1, math.MaxInt16, "CPUs that each node offers (default: as the launcher tells)"),
			setting.Text("setup-cmd", "COMMAND", &o.cfg.Setup, "shell command that every node runs first; if it fails, so does the node"),
		),
		setting.Under(checkFlags, checkSettings(&o.checks)...),
		setting.Under("The sandbox",
			setting.Text("sandbox-cmd", "COMMAND", &o.cfg.Sandbox.Command, "shell command of every node's sandbox"),
			probe("sandbox-ready", &o.cfg.Sandbox.Ready, "probe that proves it ready (default: ready as soon as it runs)"),
			require("sandbox-require", &o.cfg.Sandbox.Require, "sandboxes that the driver needs: all, any, head (that of rank 0), or a number"),
			setting.Yes("sandbox-step", &o.cfg.Sandbox.Step, "the sandboxes are a step of their own (--role=sandbox): wait for them"),
		),
		setting.Under(bringUpFlags,
			frameworkSetting(&o.framework),
			setting.Yes("dedicated-head", &o.dedicatedHead, "the head's node runs no worker and offers no GPUs"),
		),
	)
}

const (
	onFailureRequeue = "requeue"
	jsonFormat       = "json"
)

// ofJob returns the settings of the whole job and of its output.
func (o *options) ofJob() setting.List {
	t := &o.cfg.Times
	return slices.Concat(
		setting.Under("Deadlines, as in 90s or 5m",
			setting.Wait("deadline", &t.Deadline, "for the whole job, which then ends with 124 (default: none)"),
			setting.Wait("join-timeout", &t.Join, "until all nodes have met"),
			setting.Wait("setup-timeout", &t.Setup, "for the setup command"),
			setting.Wait("sandbox-timeout", &t.Sandbox, "until a sandbox is ready"),
			setting.Wait("service-timeout", &t.Service, "until a service of the framework is up"),
			setting.Wait("settle", &t.Settle, "how long the framework must list the same nodes before the gate opens"),
			setting.Wait("peer-timeout", &t.Peer, "the longest time from a peer's death to the end of the job"),
			setting.Wait("share-timeout", &t.Share, "how long a running job goes on while the share does not answer, if every lifeline is well"),
			setting.Wait("driver-grace", &t.DriverGrace, "between the driver's TERM and its KILL, up to 1h; shortened where Slurm's own KILL comes sooner"),
			setting.Wait("stop-grace", &t.StopGrace, "the same for services and sandboxes, which end after the driver; up to 10s"),
		),
		setting.Under("After a failure",
			setting.Number("restarts", &o.cfg.After.Restarts, 0, 1000, "how often the run may be begun anew within its allocation, on the nodes that are left, where the table of exit codes says yes to a requeue"),
			setting.Wait("restart-backoff", &o.cfg.After.Backoff, "the pause before the first restart, up to 1m; it doubles each time, up to 1m"),
			setting.Choice("on-failure", []string{"exit", onFailureRequeue}, &o.onFailure,
				"exit, or requeue: have Slurm start the job again without the bad nodes, where the table of exit codes says yes"),
			setting.Number("max-requeues", &o.cfg.After.Requeue.Most, 0, math.MaxInt16, "how often a job may be started again; after that it exits with 69"),
		),
		setting.Under("After the driver",
			setting.Choice("clean", config.Cleans, (*string)(&o.cfg.After.Clean),
				"what goes when the driver has ended: all, running (the nodes' temporary directories stay), or none (services stay for a look, too)"),
			setting.Wait("clean-after", &o.cfg.After.Look, "how long services stay with --clean=none"),
		),
		setting.Under("Metrics, for Prometheus",
			setting.Text("metrics-dir", "DIR", &o.cfg.Shown.MetricsDir, "node-local directory where each daemon keeps a file for node-exporter's textfile collector; the file is gone when the daemon is"),
			loopback("metrics-listen", &o.cfg.Shown.MetricsListen, "loopback address at which every daemon serves /metrics; with port 0 the log tells the port"),
		),
		setting.Under(otherFlags,
			setting.Yes("dry-run", &o.dryRun, "print the configuration and the plan, and touch nothing").Not(setting.ByFile),
			setting.Yes("share-stats", &o.cfg.ShareStats, "at the end, have the head print what all nodes have asked of the share"),
			setting.Yes("verbose", &o.cfg.Verbose, "say everything on standard error, on all nodes"),
			setting.Choice("log-format", []string{"console", jsonFormat}, &o.logFormat, "format of standard error: console or json"),
		),
	)
}
