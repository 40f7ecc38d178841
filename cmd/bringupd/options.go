package main

import (
	"math"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/gate"
	"github.com/bringupd/bringupd/pkg/output"
	"github.com/bringupd/bringupd/pkg/pmi/pmix"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
)

// options are the settings' values, before anything is made of them.
type options struct {
	launched
	cfg           config.Config // what goes there as it is told
	framework     string
	file          string // of settings
	dedicatedHead bool
	frameworks    []framework.Choice
	checks        check.Config
	onFailure     string
	dryRun        bool
	logFormat     string
}

// launched is what is told of the launch and of this node in it, beside what its
// launcher tells.
type launched struct {
	role          string
	asked         roles.Want // but for numbers
	rank          int        // -1: not told
	localSize     int        // told by "bringupd local"; 0: not by it
	interfaceName string
	gpus, cpus    int // -1, 0: not told
}

func newOptions() *options {
	o := &options{
		launched:  launched{role: "auto", rank: -1, gpus: -1},
		framework: "none", frameworks: frameworks(), logFormat: "console", onFailure: "exit", checks: check.DefaultConfig(),
		cfg: config.Config{World: config.World{Wish: ranks.Wish{Order: ranks.ByNode}, PMIx: pmix.Auto, Bind: binding.All(), Output: output.All}, Times: config.DefaultTimes(), Lifeline: config.LifelineAuto, After: config.After{Requeue: config.Requeue{Most: 3}, Clean: config.CleanAll, Look: config.DefaultLook}},
	}
	o.cfg.Sandbox.Require, _ = gate.ParseRequire("all")
	return o
}

// The headings that --help shows flags under in several subcommands.
const (
	launchFlags  = "The launch"
	checkFlags   = "The checks"
	bringUpFlags = "The framework"
	resultFlags  = "The result"
	otherFlags   = "Other"
)

// settings are all that a daemon can be told.
func (o *options) settings() settings {
	all := slices.Concat(o.ofNode(), o.ofWorld())
	for _, f := range o.frameworks {
		all = append(all, ownSettings(f)...)
	}
	return append(all, o.ofJob()...)
}

// ofNode are the settings of the launch and of what each node brings to the job. A
// rank's own are left to the command line: variables are inherited, and the file is
// the same for all. The number of nodes is not that of a job which a driver starts.
func (o *options) ofNode() settings {
	return slices.Concat(
		under(launchFlags,
			choice("role", []string{"auto", "head", "worker", "sandbox"}, &o.role, "auto (head on rank 0, worker elsewhere), head, worker, or sandbox (a sandbox in a step of its own)"),
			number("rank", &o.rank, 0, math.MaxInt32, "this daemon's rank, if no launcher tells it").not(byVariable, byFile),
			bounds("nnodes", &o.cfg.Team, "how many nodes the driver needs, and may get at most; the others are spares (default: all; "+
				"without a launcher, the number of daemons)").not(byVariable),
			text("job-id", "NAME", &o.asked.JobID, "name of the run, if no launcher names it: the same on all ranks, a new one for every launch"),
			text("interface", "NAME", &o.interfaceName, "network interface at whose address the other nodes reach this one (default: that of the route to where the job was launched)"),
			choice("lifeline", config.LifelineModes, (*string)(&o.cfg.Lifeline), "connections of the workers to the head, which show a death at once: auto (beat files where none can be made), on (fail there), or off (beat files alone)"),
			yes("launched-locally", &o.asked.Local, "").not(byVariable, byFile).hide(),
			number("launched-of", &o.localSize, 1, maxLocal, "").not(byVariable, byFile).hide(),
		),
		under("Places",
			text("log-dir", "DIR", &o.cfg.LogDir, "directory that all nodes share, for the run's records and logs (default: bringupd-logs where the job was submitted)"),
			text("temp-dir", "DIR", &o.cfg.TempDir, "node-local directory for private temporaries (default: TMPDIR, or /tmp)"),
			text("config", "FILE", &o.file, "YAML file with settings, named like the flags, and the driver, as a list").not(byFile),
		),
		under("The node",
			number("gpus-per-node", &o.gpus, 0, math.MaxInt16, "GPUs that each node must have and offers (default: as the launcher tells)"),
			number("cpus-per-node", &o.cpus, 1, math.MaxInt16, "CPUs that each node offers (default: as the launcher tells)"),
			text("setup-cmd", "COMMAND", &o.cfg.Setup, "shell command that every node runs first; if it fails, so does the node"),
		),
		under(checkFlags, checkSettings(&o.checks)...),
		under("The sandbox",
			text("sandbox-cmd", "COMMAND", &o.cfg.Sandbox.Command, "shell command of every node's sandbox"),
			probe("sandbox-ready", &o.cfg.Sandbox.Ready, "probe that proves it ready (default: ready as soon as it runs)"),
			require("sandbox-require", &o.cfg.Sandbox.Require, "sandboxes that the driver needs: all, any, head (that of rank 0), or a number"),
			yes("sandbox-step", &o.cfg.Sandbox.Step, "the sandboxes are a step of their own (--role=sandbox): wait for them"),
		),
		under(bringUpFlags,
			choice("framework", frameworkNames(), &o.framework,
				"what to bring up: none (your own commands, or nothing) or "+strings.Join(frameworkNames()[1:], " or ")),
			yes("dedicated-head", &o.dedicatedHead, "the head's node runs no worker and offers no GPUs"),
		),
	)
}

const (
	onFailureRequeue = "requeue"
	jsonFormat       = "json"
)

// ofJob are the settings of the job as a whole, and of what it says.
func (o *options) ofJob() settings {
	t := &o.cfg.Times
	return slices.Concat(
		under("Deadlines, as in 90s or 5m",
			wait("deadline", &t.Deadline, "for the whole job, which then ends with 124 (default: none)"),
			wait("join-timeout", &t.Join, "until all nodes have met"),
			wait("setup-timeout", &t.Setup, "for the setup command"),
			wait("sandbox-timeout", &t.Sandbox, "until a sandbox is ready"),
			wait("service-timeout", &t.Service, "until a service of the framework is up"),
			wait("settle", &t.Settle, "how long the framework must list the same nodes before the gate opens"),
			wait("peer-timeout", &t.Peer, "the longest time from a peer's death to the end of the job"),
			wait("share-timeout", &t.Share, "how long a running job goes on while the share does not answer, if every lifeline is well"),
			wait("driver-grace", &t.DriverGrace, "between the driver's TERM and its KILL, up to 1h; shortened where Slurm's own KILL comes sooner"),
			wait("stop-grace", &t.StopGrace, "the same for services and sandboxes, which end after the driver; up to 10s"),
		),
		under("After a failure",
			choice("on-failure", []string{"exit", onFailureRequeue}, &o.onFailure,
				"exit, or requeue: have Slurm start the job again without the bad nodes, where the table of exit codes says yes"),
			number("max-requeues", &o.cfg.After.Requeue.Most, 0, math.MaxInt16, "how often a job may be started again; after that it exits with 69"),
		),
		under("After the driver",
			choice("clean", config.Cleans, (*string)(&o.cfg.After.Clean),
				"what goes when the driver has ended: all, running (the nodes' temporary directories stay), or none (services stay for a look, too)"),
			wait("clean-after", &o.cfg.After.Look, "how long services stay with --clean=none"),
		),
		under("Metrics, for Prometheus",
			text("metrics-dir", "DIR", &o.cfg.Shown.MetricsDir, "node-local directory where each daemon keeps a file for node-exporter's textfile collector; the file is gone when the daemon is"),
			loopback("metrics-listen", &o.cfg.Shown.MetricsListen, "loopback address at which every daemon serves /metrics; with port 0 the log tells the port"),
		),
		under(otherFlags,
			yes("dry-run", &o.dryRun, "print the configuration and the plan, and touch nothing").not(byFile),
			yes("share-stats", &o.cfg.ShareStats, "at the end, have the head print what all nodes have asked of the share"),
			yes("verbose", &o.cfg.Verbose, "say everything on standard error, on all nodes"),
			choice("log-format", []string{"console", jsonFormat}, &o.logFormat, "format of standard error: console or json"),
		),
	)
}
