package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
)

// removal is something that this release no longer has. It is refused for one release, with a clause
// that names the replacement.
type removal struct {
	of      string // subcommands of a flag, or the kind of thing: see below
	name    string
	shape   string // of the value of a flag; empty for a switch
	instead string
}

// The kinds of removals that are not flags of a subcommand.
const (
	removedSubcommand = "subcommand"
	removedOperation  = "operation" // an operation of bringupd kv goes
	removedCheck      = "id"        // a check goes
	removedFormat     = "format"    // a format of reports goes
)

const (
	useStartTimeout = "give --start-timeout, or the key timeout of a role"
	useStepKey      = "make the sandbox a role with the key step; --dry-run --roles prints the file of other flags"
	useActiveCheck  = "give --active-check with a command of your own, see docs/checks.md"
)

var removals = []removal{
	{removedSubcommand, "attach", "", "bringupd status prints the launcher's own command for a shell on a node"},
	{removedSubcommand, "pmi", "", "use a program of your MPI instead, see docs/mpi.md"},
	{removedSubcommand, "simulate", "", "use bringupd roles --dry-run=FILE --fail=WHAT for what follows " +
		"from a failure, and bringupd doctor for a log directory"},

	{"run", "active-check-timeout", "TIME", "give --start-timeout"},
	{"run", "check-timeout", "TIME", "give --start-timeout"},
	{"run", "setup-timeout", "TIME", useStartTimeout},
	{"run", "sandbox-timeout", "TIME", useStartTimeout},
	{"run", "service-timeout", "TIME", useStartTimeout},
	{"run", "sandbox-step", "", useStepKey},
	{"run", "restart-backoff", "TIME",
		"restarts follow at once, after 1s, 2s and so on up to 1m; a role has the key restarts.backoff"},
	{"run", "restart-window", "TIME", "all restarts count; a role has the key restarts.window"},
	{"run", "restart-needs-progress", "", "--progress implies it"},
	{"run", "settle", "TIME", "Ray and Dask count their nodes before the driver starts"},
	{"run", "stop-grace", "TIME", "services and sandboxes have 5s; a role has the key grace"},
	{"run", "clean-after", "TIME", "services stay for 10m with --clean=none"},
	{"run", "metrics-listen", "ADDRESS:PORT", "give --metrics-dir"},
	{"run", "share-timeout", "TIME", "an outage of the shared file system is tolerated for 10m"},
	{"run", "keep", "N|TIME", "run bringupd prune, for example by --on-end='bringupd prune --keep=20'"},
	{"run", "cpus-per-node", "N", "the launcher gives the CPUs; taskset limits them"},
	{"run", "share-stats", "", "result.json and bringupd report always have the calls"},
	{"run", "ray", "PROGRAM", "put its directory into PATH"},
	{"run", "dask", "PROGRAM", "put its directory into PATH"},
	{"run", "ray-port", "N", "give --framework-port"},
	{"run", "dask-port", "N", "give --framework-port"},
	{"run", "ray-auth", "WORD", "give --framework-auth"},
	{"run", "dask-tls", "WORD", "give --framework-auth"},
	{"run", "ray-ports", "N", "give Ray's ports by --ray-head-args and --ray-worker-args"},
	{"run", "ray-tuning", "WORD", "your own RAY_ variables have precedence"},
	{"run", "merge-identical", "", "--output=rank0 prints the lines of one rank"},
	{"run rank", "bind-strict", "", "--bind with a list of kinds is strict, and auto is not"},
	{"run rank", "allow-launcher", "", "a command of sh -c is not checked"},
	{"run rank topology", "nvml", "FILE", "put its directory into LD_LIBRARY_PATH"},
	{"run", "xid-policy", "FILE", "--check=ID=WORD sets the severity of checks"},
	{"run", "hang-signs", "WORD", "steps count once there is one, and before that CPU time and output"},
	{"run", "rank-order", "WORD", "ranks are numbered node by node"},
	{"run", "stdin", "N", "rank 0 gets standard input"},
	{"run", "mpirun", "WORD", "an mpirun of the driver is supported with --framework=none and without " +
		"ranks; variables that you have set are not changed"},
	{"check doctor", "active", "WORD", "for the GPUs, give --active-check with dcgmi diag, see " +
		"docs/checks.md; for the network, run nccl-tests or perftest, see docs/doctor.md"},
	{"check", "bind", "", "a rank that is not bound to its part (BRINGUPD_BINDING) is reported when it starts"},
	{"report", "compare", "DIR",
		"run bringupd report --format=json for each of the two runs, and compare these by jq or diff"},

	{removedOperation, "watch", "", "get and fence fail at once, and name the rank or node that has ended"},
	{"kv", "collect", "", "values are sent to the nodes that get them"},

	{"status", "timeout", "TIME", "give it to bringupd wait"},
	{"roles", "schema", "", "docs/roles.md lists the keys of the file"},
	{"list", "since", "TIME", "select by ended_at of bringupd list --json"},
	{"version", "json", "", "go version -m PROGRAM prints the build information"},

	{removedFormat, "text", "", "bringupd status RUN shows a run on a terminal, and --format=json has the rest"},
	{removedFormat, "md", "", "attach the page, or give --format=json"},
	{removedFormat, "chrome-trace", "", "the page has the timeline, and --format=json its times"},

	{removedCheck, "monitor.dcgm monitor.gpud net.pairs net.pairs_ib active.gpu_copy active.gpu_peer " +
		"active.gpu_math host.history host.kernel net.ib_err gpu.clocks gpu.pcie gpu.persistence " +
		"gpu.ecc_corr gpu.env " +
		"cuda.peers x.pcie x.power_limit x.app_clocks x.persistence x.ecc x.gpu_idle " +
		"left.processes left.shm left.temp ports.given share.record", "", useActiveCheck},
}

// removedFrom returns what was removed from a subcommand or is of that kind.
func removedFrom(of string) (all []removal) {
	for _, r := range removals {
		if slices.Contains(strings.Fields(r.of), of) {
			all = append(all, r)
		}
	}
	return all
}

// removedSettings returns the settings of the flags that a subcommand no longer has. For flags of
// run, variables and keys of the file are refused, too. --help does not list them.
func removedSettings(command string) (all config.List) {
	for _, r := range removedFrom(command) {
		s := config.NewRemoved(r.name, r.shape, r.instead)
		if !strings.HasPrefix(r.of, "run") { // it had no variable
			config.FlagsOnly(s)
		}
		all = append(all, s)
	}
	return all
}

// removedCommands returns the hidden subcommands that refuse every call.
func removedCommands() (all []*cli.Command) {
	for _, r := range removedFrom(removedSubcommand) {
		all = append(all, &cli.Command{
			Name: r.name, Usage: "removed: " + r.instead, UsageText: "(none)", Hidden: true, SkipFlagParsing: true,
			Action: func(*cli.Context) error {
				return usageErrorf("cannot run bringupd %s: this subcommand was removed: %s", r.name, r.instead)
			},
		})
	}
	return all
}
