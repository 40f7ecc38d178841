package main

import "github.com/bringupd/bringupd/pkg/config"

// removedFlag is a flag that this release no longer has. It is refused for one release, with a
// clause that names the replacement.
type removedFlag struct{ name, shape, instead string }

const useStartTimeout = "give --start-timeout, or the key timeout of a role"

// removedRunFlags are those of "bringupd run", with their variables and their keys of the file.
var removedRunFlags = []removedFlag{
	{"active-check-timeout", "TIME", "give --start-timeout"},
	{"check-timeout", "TIME", "give --start-timeout"},
	{"setup-timeout", "TIME", useStartTimeout},
	{"sandbox-timeout", "TIME", useStartTimeout},
	{"service-timeout", "TIME", useStartTimeout},
	{"restart-backoff", "TIME",
		"restarts follow at once, after 1s, 2s and so on up to 1m; a role has the key restarts.backoff"},
	{"restart-window", "TIME", "all restarts count; a role has the key restarts.window"},
	{"restart-needs-progress", "", "--progress implies it"},
	{"settle", "TIME", "Ray and Dask count their nodes before the driver starts"},
	{"stop-grace", "TIME", "services and sandboxes have 5s; a role has the key grace"},
	{"clean-after", "TIME", "services stay for 10m with --clean=none"},
	{"metrics-listen", "ADDRESS:PORT", "give --metrics-dir"},
	{"share-timeout", "TIME", "an outage of the shared file system is tolerated for 10m"},
	{"keep", "N|TIME", "run bringupd prune, for example by --on-end='bringupd prune --keep=20'"},
	{"cpus-per-node", "N", "the launcher gives the CPUs; taskset limits them"},
	{"share-stats", "", "result.json and bringupd report always have the calls"},
	{"ray", "PROGRAM", "put its directory into PATH"},
	{"dask", "PROGRAM", "put its directory into PATH"},
	{"ray-port", "N", "give --framework-port"},
	{"dask-port", "N", "give --framework-port"},
	{"ray-auth", "WORD", "give --framework-auth"},
	{"dask-tls", "WORD", "give --framework-auth"},
	{"ray-ports", "N", "give Ray's ports by --ray-head-args and --ray-worker-args"},
	{"ray-tuning", "WORD", "your own RAY_ variables have precedence"},
	{"merge-identical", "", "--output=rank0 prints the lines of one rank"},
	bindStrictFlag,
	nvmlFlag,
	{"xid-policy", "FILE", "--check=ID=WORD sets the severity of checks"},
	{"hang-signs", "WORD", "steps count once there is one, and before that CPU time and output"},
	{"rank-order", "WORD", "ranks are numbered node by node"},
	{"stdin", "N", "rank 0 gets standard input"},
	{"mpirun", "WORD",
		"an mpirun of the driver is supported with --framework=none and without ranks; variables that you " +
			"have set are not changed"},
}

var nvmlFlag = removedFlag{"nvml", "FILE", "put its directory into LD_LIBRARY_PATH"}

var bindStrictFlag = removedFlag{"bind-strict", "", "--bind with a list of kinds is strict, and auto is not"}

// removedSettings returns the settings of those removed flags, which --help does not list.
func removedSettings(flags ...removedFlag) (all config.List) {
	for _, flag := range flags {
		all = append(all, config.NewRemoved(flag.name, flag.shape, flag.instead))
	}
	return all
}
