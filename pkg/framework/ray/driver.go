package ray

import (
	"slices"
	"strings"
)

// adviceForDriver has messages of Ray's command line, and what to do about them. For isDashboard,
// that depends on whether the head's arguments enable the dashboard.
var adviceForDriver = []struct {
	messages    []string
	isDashboard bool
	step        string
}{
	{
		// without an address, and with that of a dashboard
		messages:    []string{"Could not read 'dashboard' from GCS", "Failed to connect to Ray at address: http"},
		isDashboard: true,
		step: `enable Ray's dashboard, which ray job submit needs: --ray-head-args=--include-dashboard=true, ` +
			`or export BRINGUPD_RAY_HEAD_ARGS=--include-dashboard=true; and pip install "ray[default]"`,
	},
	{
		// of ray symmetric-run, and of ray start --head
		messages: []string{"Ray is already started on this node", "does not match persisted value"},
		step: "leave out ray start and ray symmetric-run: bringupd has started the cluster, " +
			"and ray.init() finds it by RAY_ADDRESS",
	},
}

// adviseDriver returns what to do about a failed driver with these last lines, or an empty string.
func (r Cluster) adviseDriver(lines []string) string {
	flags, err := parseFlags(r.HeadArgs)
	for _, advice := range adviceForDriver {
		if advice.isDashboard && (err != nil || hasDashboard(flags)) {
			continue
		}
		if slices.ContainsFunc(lines, func(line string) bool {
			return slices.ContainsFunc(advice.messages,
				func(message string) bool { return strings.Contains(line, message) })
		}) {
			return advice.step
		}
	}
	return ""
}
