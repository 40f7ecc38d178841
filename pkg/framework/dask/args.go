package dask

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/bringupd/bringupd/pkg/framework"
)

// schedulerVariable is the variable by which Client() finds the scheduler.
const schedulerVariable = "DASK_SCHEDULER_ADDRESS"

// dashboardFlag is the address of the dashboard of a scheduler or a worker. By default it is not
// reachable from other nodes, because it has no certificate.
const (
	dashboardFlag   = "--dashboard-address"
	hiddenDashboard = dashboardFlag + "=127.0.0.1:0"
)

// switchPairs are switches of dask scheduler and dask worker; if the user gives one of a pair, it
// replaces ours.
var switchPairs = [][2]string{{"--dashboard", "--no-dashboard"}, {"--nanny", "--no-nanny"}}

// valuelessFlags are the flags of both programs without a value; all others have one.
var valuelessFlags = []string{
	"--dashboard", "--no-dashboard", "--nanny", "--no-nanny", "--show", "--no-show", "--jupyter", "--no-jupyter",
	"--lifetime-restart", "--no-lifetime-restart", "--version", "--help", "-h",
}

// reservedFlags are flags that the daemon sets, with the settings to use instead.
var reservedFlags = map[string]string{
	"--host":            "use bringupd's --interface",
	"--interface":       "use bringupd's --interface",
	"--port":            "use --framework-port",
	"--protocol":        "use --framework-auth",
	"--tls-ca-file":     "bringupd makes a certificate for each run; use --framework-auth=off to run without TLS",
	"--tls-cert":        "bringupd makes a certificate for each run; use --framework-auth=off to run without TLS",
	"--tls-key":         "bringupd makes a certificate for each run; use --framework-auth=off to run without TLS",
	"--jupyter":         "anyone who can connect to its pages could run code, and the pages do not use TLS",
	"--scheduler-file":  "workers and the driver get the scheduler's address from bringupd",
	"--name":            "bringupd identifies workers by the names that it sets",
	"--listen-address":  "use bringupd's --interface",
	"--contact-address": "use bringupd's --interface",
	"--version":         "run dask --version yourself",
	"--help":            "run dask worker --help yourself",
	"-h":                "run dask worker --help yourself",
}

// schedulerArgv returns the command line of the scheduler. Its dashboard is on port pages if the
// user enables it without an address.
func (d Cluster) schedulerArgv(node framework.Node, port, pages int) ([]string, error) {
	extra, err := parseUserFlags("dask scheduler", d.SchedulerArgs)
	if err != nil {
		return nil, err
	}
	at := hiddenDashboard
	if hasDashboard(extra) {
		at = dashboardFlag + "=127.0.0.1:" + strconv.Itoa(pages)
	}
	return append([]string{programName, "scheduler"}, mergeFlags(framework.Arguments{
		"--host=" + node.Address, "--port=" + strconv.Itoa(port), "--protocol=" + d.urlScheme(), "--no-dashboard", at,
	}, extra)...), nil
}

func hasDashboard(flags framework.Arguments) bool {
	return slices.Contains(flags, "--dashboard") && !slices.Contains(flags, "--no-dashboard")
}

// dashboardURL returns the URL of the dashboard of a scheduler with these flags. It is empty if
// there is none. The flag's value is "host:port", ":port" or "port".
func dashboardURL(node framework.Node, flags framework.Arguments) string {
	if !hasDashboard(flags) {
		return ""
	}
	at, _ := flags.LastValue(dashboardFlag)
	host, port, err := net.SplitHostPort(at)
	if err != nil {
		host, port = "", at
	}
	if url := framework.DashboardURL(node, host, port); url != "" {
		return url + "/status"
	}
	return ""
}

// workerArgv returns the command line of a node's worker, or of the nanny of its workers, and the
// workers that the scheduler must list then.
func (d Cluster) workerArgv(node framework.Node, scheduler string) ([]string, []workerInfo, error) {
	extra, err := parseUserFlags("dask worker", d.WorkerArgs)
	if err != nil {
		return nil, nil, err
	}
	n, err := d.workersPerNode()
	if err != nil {
		return nil, nil, err
	}
	nanny := "--no-nanny"
	if n > 1 {
		nanny = "--nanny" // Dask starts several workers only by nannies
	}
	name := framework.NodeName(node.RunName, node.LaunchIndex)
	flags := framework.Arguments{
		"--name=" + name, "--host=" + node.Address, nanny, "--local-directory=" +
			filepath.Join(node.TempDir, "dask"), "--no-dashboard", hiddenDashboard,
	}
	// Both are values per worker, so the node's are divided.
	if node.CPUs > 0 {
		flags = append(flags, "--nthreads="+strconv.Itoa(max(1, node.CPUs/n)))
	}
	if node.MaxMemory > 0 { // Dask considers the limit of a container, but not that of a step
		flags = append(flags, "--memory-limit="+strconv.FormatInt(node.MaxMemory/int64(n), 10))
	}
	if node.GPUs >= n {
		flags = append(flags, "--resources=GPU="+strconv.Itoa(node.GPUs/n))
	}
	flags = mergeFlags(flags, extra)
	wanted := make([]workerInfo, n)
	for i, name := range workerNames(name, n) {
		wanted[i] = expectedWorker(name, flags)
	}
	return append([]string{programName, "worker", scheduler}, flags...), wanted, nil
}

func (d Cluster) workersPerNode() (int, error) {
	extra, err := parseUserFlags("dask worker", d.WorkerArgs)
	if err != nil {
		return 0, err
	}
	given, ok := extra.LastValue("--nworkers")
	if !ok {
		return 1, nil
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("cannot pass --nworkers=%s to dask worker: give a number of 1 or "+
			"more, because bringupd counts the workers", given)
	}
	return n, nil
}

// workerNames returns the names that Dask derives from name for n workers.
func workerNames(name string, n int) []string {
	if n == 1 {
		return []string{name}
	}
	names := make([]string, n)
	for i := range names {
		names[i] = name + "-" + strconv.Itoa(i)
	}
	return names
}

func parseUserFlags(program string, args []string) (framework.Arguments, error) {
	flags, err := framework.ParseArguments(program, args, valuelessFlags, "--preload=MODULE")
	if err == nil {
		err = flags.RejectFlags(program, reservedFlags)
	}
	return flags, err
}

// mergeFlags returns our flags, without those that the user replaces, followed by the user's.
func mergeFlags(own, extra framework.Arguments) framework.Arguments {
	replaced := func(flag string) bool {
		name := framework.FlagName(flag)
		return extra.HasFlag(name) || slices.ContainsFunc(switchPairs, func(pair [2]string) bool {
			return slices.Contains(pair[:], name) && (extra.HasFlag(pair[0]) || extra.HasFlag(pair[1]))
		})
	}
	return append(slices.DeleteFunc(own, replaced), extra...)
}

// envSettings returns variables for Dask's programs, which the user can override.
func (d Cluster) envSettings(argv []string) map[string]string {
	// The output of a task is in the log even if its worker is killed.
	set := map[string]string{"PYTHONUNBUFFERED": "1"}
	if d.usesTLS() {
		// All connections and listeners without TLS are refused.
		set["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] = "True"
	}
	if slices.Contains(argv, hiddenDashboard) && slices.Contains(argv, "--no-dashboard") {
		// Dask listens for HTTP nevertheless. Other users of the node could read its pages, which show
		// code and logs, so all routes are removed.
		set["DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES"] = "[]"
		set["DASK_DISTRIBUTED__WORKER__HTTP__ROUTES"] = "[]"
	}
	return set
}

func (d Cluster) urlScheme() string {
	if d.usesTLS() {
		return "tls"
	}
	return "tcp"
}
