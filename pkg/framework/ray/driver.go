package ray

import (
	"slices"
	"strings"
)

// dashboardMessages are messages of Ray's command line if it cannot reach the dashboard: without an
// address, and with that of a dashboard.
var dashboardMessages = []string{
	"Could not read 'dashboard' from GCS",
	"Failed to connect to Ray at address: http",
}

// adviseDriver returns what to do about a failed driver with these last lines, or an empty string:
// ray job needs the dashboard, which is off unless the arguments of the head enable it.
func (r Cluster) adviseDriver(lines []string) string {
	flags, err := parseFlags(r.HeadArgs)
	if err != nil || hasDashboard(flags) || !slices.ContainsFunc(lines, func(line string) bool {
		return slices.ContainsFunc(dashboardMessages, func(message string) bool { return strings.Contains(line, message) })
	}) {
		return ""
	}
	return `enable Ray's dashboard, which ray job submit needs: --ray-head-args=--include-dashboard=true, ` +
		`or export BRINGUPD_RAY_HEAD_ARGS=--include-dashboard=true; and pip install "ray[default]"`
}
