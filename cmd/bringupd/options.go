package main

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// options are the values of the settings, before they are resolved.
type options struct {
	launchOptions
	cfg        config.Config // values that need no resolution
	framework  string
	configFile string            // the configuration file
	shared     framework.Options // all frameworks'
	frameworks []framework.Factory
	checks     check.Config
	onFailure  string
	dryRun     bool
	printRoles bool
	logFormat  string
}

// launchOptions are the settings about the launch and this node's part in it, in addition to the
// launcher's environment.
type launchOptions struct {
	role       string             // always auto
	overrides  launcher.Overrides // except numbers
	nodeIndex  int                // -1: not given
	localSize  int                // given by "bringupd local"; 0: otherwise
	interfaces string
	gpus       int // -1: not given
	// gpusSetting sets gpus, and knows what has given it; nil in a subcommand without it.
	gpusSetting *config.Setting
}

func newOptions() *options {
	o := &options{
		launchOptions: launchOptions{role: autoRole, nodeIndex: -1, gpus: -1},
		framework:     "none", frameworks: allFrameworks(),
		shared:    framework.Options{Port: framework.DefaultPort, Auth: framework.AuthAuto},
		logFormat: "console", onFailure: "exit", checks: check.DefaultConfig(),
	}
	o.cfg.World = config.RankOptions{PMIx: pmix.Auto, Bind: affinity.AllKinds(), Output: console.AllRanks}
	o.cfg.Times, o.cfg.Lifeline = config.DefaultTimeouts(), config.LinkAuto
	o.cfg.After = config.PostRun{
		Rules: config.RestartRules{On: config.RestartOnNode}, Requeue: config.RequeueConfig{Most: 3},
		Clean: config.CleanAll, Look: config.DefaultInspectionTime,
	}
	o.cfg.Sandbox.Require, _ = membership.ParseSandboxQuorum("all")
	return o
}

// The headings of flags in the help of several subcommands.
const (
	commonHeading = "Common"
	checkHeading  = "Node checks"
	outputHeading = "Output"
	launchHeading = "Launch"
	runHeading    = "Selection of the run"

	clusterHeading = "With --framework=ray or dask"
)

// daemonSettings returns all settings of a daemon. The most used ones come first.
func (o *options) daemonSettings() config.List {
	all := slices.Concat(o.commonSettings(), o.rankSettings())
	for _, f := range o.frameworks {
		all = append(all, frameworkSettings(f)...)
	}
	clusters := config.AssignCategory(clusterHeading,
		config.NewNumber("framework-port", &o.shared.Port, 0, math.MaxUint16,
			"port of the head's service; 0 picks a free one (default: 6379 for Ray, 8786 for Dask)"),
		config.NewChoice("framework-auth",
			[]string{framework.AuthAuto, framework.AuthOwn, framework.AuthOff}, &o.shared.Auth,
			"who may connect: auto (only holders of this run's token or certificate), own (Ray only: as "+
				"set by RAY_AUTH_MODE), off (anyone)"),
	)
	for _, s := range clusters {
		s.Frameworks = frameworkNames()[1:]
	}
	return slices.Concat(all, clusters, o.jobSettings(), o.nodeSettings(), removedSettings("run"))
}

// commonSettings returns the settings that most jobs use. The numbers of nodes and ranks have no
// variables: those of a job that a driver starts differ, and variables of ranks have these names.
func (o *options) commonSettings() config.List {
	w := &o.cfg.World
	o.gpusSetting = config.NewNumber("gpus-per-node", &o.gpus, 0, math.MaxInt16,
		"GPUs required on each node (default: as reported by the launcher)")
	return config.AssignCategory(commonHeading,
		frameworkSetting(&o.framework),
		ranksPerNodeSetting(&w.PerNode,
			"run the driver as ranks on every node: a number per node, or one per gpu, numa (NUMA node) or "+
				"core").WithoutVariable(),
		config.NewNumber("ranks", &w.Total, 1, math.MaxInt32,
			"run the driver as this number of ranks in total, placed node by node: one per GPU, or one per "+
				"core without GPUs").WithoutVariable(),
		config.NewValue("nnodes", "MIN[:MAX]", &o.cfg.Team, membership.ParseNodeRange, config.ShowGiven,
			"number of nodes for the driver, or minimum and maximum; other nodes are spares (default: all; "+
				"without a launcher, the number of daemons)").WithoutVariable(),
		o.gpusSetting,
		config.NewText("log-dir", "DIR", &o.cfg.LogDir,
			"directory for records and logs, on a file system that all nodes share (default: bringupd-logs "+
				"in the directory where the job was submitted)"),
		config.NewText("config", "FILE", &o.configFile,
			"YAML file with settings, named like the flags, and the driver as a "+
				"list").WithoutFile(),
		config.NewDuration("deadline", &o.cfg.Times.Deadline,
			"maximum duration of the job, for example 90m; it then ends with 124 (default: none)"),
		config.NewSwitch("dry-run", &o.dryRun,
			"print the configuration, and do nothing").WithoutFile(),
		config.NewValue("roles", "", &o.printRoles, parseRolesSwitch, config.ShowUnchanged,
			"with --dry-run, print the roles for which the flags stand, as a file for "+
				"--config").WithoutFile().WithoutVariable(),
		config.NewSwitch("verbose", &o.cfg.Verbose, "print detailed messages of all nodes"),
	)
}

// parseRolesSwitch reads the value of --roles, which other programs would take for a file.
func parseRolesSwitch(value string) (bool, error) {
	parsed, err := strconv.ParseBool(value)
	if err != nil {
		err = errors.New("this switch has no value; for a file of roles: --config=" +
			textutil.QuoteShellWord(value))
	}
	return parsed, err
}

const jsonFormat = "json"

const startTimeoutFlag = "start-timeout"

func (o *options) jobSettings() config.List {
	t := &o.cfg.Times
	return slices.Concat(
		config.AssignCategory("After a failure", config.RecoverySettings(&o.cfg.After, &o.onFailure)...),
		config.AssignCategory("Sandboxes",
			config.NewText("sandbox-cmd", "COMMAND", &o.cfg.Sandbox.Command,
				"shell command that starts each node's sandbox"),
			probeSetting("sandbox-ready", &o.cfg.Sandbox.Ready,
				"readiness probe of the sandbox (default: ready once it runs)"),
			config.NewValue("sandbox-require", "WHICH", &o.cfg.Sandbox.Require,
				membership.ParseSandboxQuorum, config.ShowText,
				"sandboxes that the driver needs: all, any, head (that of node 0), or a "+
					"number").WithWords("all", "any", "head"),
		),
		config.AssignCategory(checkHeading, checkSettings(&o.checks)...),
		config.AssignCategory("Timeouts, for example 90s or 5m",
			config.NewDuration("driver-grace", &t.DriverGrace,
				"from SIGTERM to SIGKILL of the driver; at most 1h, and less if Slurm kills the job sooner"),
			config.NewDuration("join-timeout", &t.Join, "time until all nodes have joined"),
			config.NewDuration(startTimeoutFlag, &t.Start,
				"maximum time of each part of the start: the setup command, an active check, a sandbox or a "+
					"service until it is ready"),
			config.NewDuration("peer-timeout", &t.Peer, "maximum time from the loss of a node to the end of the job"),
		),
		config.AssignCategory("After the driver",
			config.NewChoice("clean", config.CleanupPolicies, (*string)(&o.cfg.After.Clean),
				"what to remove after the driver has ended: all, running (processes, but not the nodes' "+
					"temporary directories), or none (services keep running for 10m, for inspection)"),
			config.NewText("on-end", "COMMAND", &o.cfg.After.OnEnd,
				"shell command that the head runs when the run has ended, with result.json on standard "+
					"input, for example to send a message; at most 20s"),
		),
	)
}

// nodeSettings returns the settings of the nodes, of the launch and of output. The node's index can
// only be given on the command line, because variables are inherited and the file is the same for
// all nodes.
func (o *options) nodeSettings() config.List {
	return slices.Concat(
		config.AssignCategory("Nodes",
			config.NewText("setup-cmd", "COMMAND", &o.cfg.Setup,
				"shell command that runs first on every node; if it fails, the node fails"),
			config.NewSwitch("dedicated-head", &o.shared.DedicatedHead,
				"run no worker on the head's node, and offer none of its GPUs"),
			config.NewText("temp-dir", "DIR", &o.cfg.TempDir,
				"node-local directory for temporary files (default: TMPDIR, or /tmp)"),
		),
		config.AssignCategory(launchHeading,
			config.NewValue("role", "auto", &o.role, parseDaemonRole, config.ShowUnchanged,
				"auto: the daemon of node 0 is the head, the others are workers").WithWords(autoRole),
			config.NewText("step", "NAME", &o.cfg.Roles.Step,
				"further job step of the run, to which this daemon "+
					"belongs").WithoutVariable().WithoutFile(),
			config.NewOptional("job-id", "NAME", &o.overrides.JobID,
				func(name string) (string, error) { return name, launcher.CheckRunName(name) },
				"name of the run, the same on all nodes and new for each launch (default: from the launcher)"),
			config.NewNumber("rank", &o.nodeIndex, 0, math.MaxInt32,
				"index of this node, if there is no launcher").WithoutVariable().WithoutFile(),
			config.NewValue("interface", "LIST", &o.interfaces, launcher.ParseInterfaces, config.ShowUnchanged,
				"network interface for other nodes: a name (ib0), a pattern (ib*) or a subnet "+
					"(10.1.0.0/16), or several, the preferred one first (default: that of the route to the "+
					"submit host)"),
			config.NewChoice("lifeline", config.LinkModes, (*string)(&o.cfg.Lifeline),
				"TCP connections from workers to the head: auto (heartbeat files if they fail), on "+
					"(required), or off (heartbeat files only)"),
		),
		o.launchedSettings(),
		config.AssignCategory("Logging and metrics",
			config.NewChoice("log-format", []string{"console", jsonFormat}, &o.logFormat,
				"format of messages on standard error: console or json"),
			config.ProgressSetting(&o.cfg.Progress),
			config.NewText("metrics-dir", "DIR", &o.cfg.MetricsDir,
				"node-local directory for node-exporter's textfile collector; each daemon writes a file "+
					"there and removes it at its end; a file per user, which stays, counts ended runs"),
		),
	)
}

// launchedSettings returns the hidden settings that "bringupd local" and "bringupd hosts" give.
func (o *options) launchedSettings() config.List {
	hosts := config.NewValue("launched-on", "LIST", &o.overrides.Hosts,
		func(list string) ([]string, error) { return strings.Split(list, ","), nil },
		func(hosts []string) any { return strings.Join(hosts, ",") }, "")
	all := config.FlagsOnly(
		config.NewSwitch("launched-locally", &o.overrides.Local, ""), hosts,
		config.NewNumber("launched-of", &o.localSize, 1, maxLocalDaemons, ""),
	)
	for _, s := range all {
		s.Hidden = true
	}
	return all
}
