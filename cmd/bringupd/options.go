package main

import (
	"math"
	"slices"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/gate"
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
		cfg: config.Config{Times: config.DefaultTimes(), Lifeline: config.LifelineAuto, Requeue: config.Requeue{Most: 3}},
	}
	o.cfg.Sandbox.Require, _ = gate.ParseRequire("all")
	return o
}

// The headings that --help shows the flags under, in its order.
const (
	launchFlags  = "The launch"
	placeFlags   = "Places"
	nodeFlags    = "The node"
	checkFlags   = "The checks"
	sandboxFlags = "The sandbox"
	bringUpFlags = "The framework"
	timeFlags    = "Deadlines, as in 90s or 5m"
	failureFlags = "After a failure"
	metricFlags  = "Metrics, for Prometheus"
	otherFlags   = "Other"
)

// settings are all that a daemon can be told.
func (o *options) settings() settings {
	all := slices.Concat(
		under(launchFlags, o.launch()), under(placeFlags, o.places()), under(nodeFlags, o.node()),
		under(checkFlags, checkSettings(&o.checks)), under(sandboxFlags, o.sandboxes()), under(bringUpFlags, o.bringUp()),
	)
	for _, f := range o.frameworks {
		all = append(all, ownSettings(f)...)
	}
	return slices.Concat(all,
		under(timeFlags, o.deadlines()), under(failureFlags, o.failures()), under(metricFlags, o.metrics()), under(otherFlags, o.others()))
}

func under(category string, all settings) settings {
	for _, s := range all {
		s.category = category
	}
	return all
}

// onThisRank keeps a setting to the command line: it differs from rank to rank,
// where variables are inherited and the file is the same.
func onThisRank(s *setting) *setting {
	s.noVariable, s.noFile = true, true
	return s
}

// notByVariable keeps a setting from the jobs that a driver starts in its turn.
func notByVariable(s *setting) *setting {
	s.noVariable = true
	return s
}

func notInFile(s *setting) *setting {
	s.noFile = true
	return s
}

func hidden(s *setting) *setting {
	s.hidden = true
	return onThisRank(s)
}

func (o *options) launch() settings {
	return settings{
		choice("role", []string{"auto", "head", "worker", "sandbox"}, &o.role, "auto (head on rank 0, worker elsewhere), head, worker, or sandbox (a sandbox in a step of its own)"),
		onThisRank(number("rank", &o.rank, 0, math.MaxInt32, "this daemon's rank, if no launcher tells it")),
		notByVariable(bounds("nnodes", &o.cfg.Team, "how many nodes the driver needs, and may get at most; the others are spares (default: all; "+
			"without a launcher, the number of daemons)")),
		text("job-id", "NAME", &o.asked.JobID, "name of the run, if no launcher names it: the same on all ranks, a new one for every launch"),
		text("interface", "NAME", &o.interfaceName, "network interface at whose address the other nodes reach this one (default: that of the route to where the job was launched)"),
		choice("lifeline", config.LifelineModes, (*string)(&o.cfg.Lifeline), "connections of the workers to the head, which show a death at once: auto (beat files where none can be made), on (fail there), or off (beat files alone)"),
		hidden(yes("launched-locally", &o.asked.Local, "")),
		hidden(number("launched-of", &o.localSize, 1, maxLocal, "")),
	}
}

func (o *options) places() settings {
	return settings{
		text("log-dir", "DIR", &o.cfg.LogDir, "directory that all nodes share, for the run's records and logs (default: bringupd-logs where the job was submitted)"),
		text("temp-dir", "DIR", &o.cfg.TempDir, "node-local directory for private temporaries (default: TMPDIR, or /tmp)"),
		notInFile(text("config", "FILE", &o.file, "YAML file with settings, named like the flags, and the driver, as a list")),
	}
}

func (o *options) node() settings {
	return settings{
		number("gpus-per-node", &o.gpus, 0, math.MaxInt16, "GPUs that each node must have and offers (default: as the launcher tells)"),
		number("cpus-per-node", &o.cpus, 1, math.MaxInt16, "CPUs that each node offers (default: as the launcher tells)"),
		text("setup-cmd", "COMMAND", &o.cfg.Setup, "shell command that every node runs first; if it fails, so does the node"),
	}
}

func (o *options) sandboxes() settings {
	return settings{
		text("sandbox-cmd", "COMMAND", &o.cfg.Sandbox.Command, "shell command of every node's sandbox"),
		probe("sandbox-ready", &o.cfg.Sandbox.Ready, "probe that proves it ready (default: ready as soon as it runs)"),
		require("sandbox-require", &o.cfg.Sandbox.Require, "sandboxes that the driver needs: all, any, head (that of rank 0), or a number"),
		yes("sandbox-step", &o.cfg.Sandbox.Step, "the sandboxes are a step of their own (--role=sandbox): wait for them"),
	}
}

func (o *options) bringUp() settings {
	return settings{
		choice("framework", frameworkNames(), &o.framework, frameworkUsage()),
		yes("dedicated-head", &o.dedicatedHead, "the head's node runs no worker and offers no GPUs"),
	}
}

func (o *options) deadlines() settings {
	t := &o.cfg.Times
	return settings{
		wait("join-timeout", &t.Join, "until all nodes have met"),
		wait("setup-timeout", &t.Setup, "for the setup command"),
		wait("sandbox-timeout", &t.Sandbox, "until a sandbox is ready"),
		wait("service-timeout", &t.Service, "until a service of the framework is up"),
		wait("settle", &t.Settle, "how long the framework must list the same nodes before the gate opens"),
		wait("peer-timeout", &t.Peer, "the longest time from a peer's death to the end of the job"),
		wait("share-timeout", &t.Share, "how long a running job goes on while the share does not answer, if every lifeline is well"),
		wait("driver-grace", &t.DriverGrace, "between the driver's TERM and its KILL, up to 1h; shortened where Slurm's own KILL comes sooner"),
		wait("stop-grace", &t.StopGrace, "the same for services and sandboxes, which end after the driver; up to 10s"),
	}
}

func (o *options) failures() settings {
	return settings{
		choice("on-failure", []string{"exit", onFailureRequeue}, &o.onFailure,
			"exit, or requeue: have Slurm start the job again without the bad nodes, where the table of exit codes says yes"),
		number("max-requeues", &o.cfg.Requeue.Most, 0, math.MaxInt16, "how often a job may be started again; after that it exits with 69"),
	}
}

const onFailureRequeue = "requeue"

const jsonFormat = "json"

func (o *options) metrics() settings {
	return settings{
		text("metrics-dir", "DIR", &o.cfg.Shown.MetricsDir, "node-local directory where each daemon keeps a file for node-exporter's textfile collector; the file is gone when the daemon is"),
		loopback("metrics-listen", &o.cfg.Shown.MetricsListen, "loopback address at which every daemon serves /metrics; with port 0 the log tells the port"),
	}
}

func (o *options) others() settings {
	return settings{
		notInFile(yes("dry-run", &o.dryRun, "print the configuration and the plan, and touch nothing")),
		yes("share-stats", &o.cfg.ShareStats, "at the end, have the head print what all nodes have asked of the share"),
		yes("verbose", &o.cfg.Verbose, "say everything on standard error, on all nodes"),
		choice("log-format", []string{"console", jsonFormat}, &o.logFormat, "format of standard error: console or json"),
	}
}
