package ray

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/framework"
)

// portFlags are the flags of "ray start" that set a port, in Ray's order.
var portFlags = []struct {
	name, what string // the flag, and the listener
	ofHead     bool   // only on the head
	// reserved is the port that Ray assumes on every node, even on a worker, which never opens it. It
	// conflicts with other flags nevertheless.
	reserved int
}{
	{"--port", "Ray's GCS", true, 0},
	{clientPortFlag, "the Ray Client server", true, 10001},
	{dashboardPortFlag, "Ray's dashboard", true, 8265},
	{"--object-manager-port", "Ray's object manager", false, 0},
	{"--node-manager-port", "Ray's node manager", false, 0},
	{"--dashboard-agent-grpc-port", "Ray's dashboard agent (gRPC)", false, 0},
	{"--dashboard-agent-listen-port", "Ray's dashboard agent (HTTP)", false, 0},
	{"--runtime-env-agent-port", "Ray's runtime environment agent", false, 0},
	{"--metrics-export-port", "Ray's metrics", false, 0},
}

const (
	dashboardPortFlag = "--dashboard-port"
	clientPortFlag    = "--ray-client-server-port"
)

// fixedPorts returns the fixed ports on which a start with these flags will listen. It returns an
// error if two of them are the same, or one is in the range of the worker processes. Ray would fail
// then, too, after a second and with a traceback.
func fixedPorts(flags framework.Arguments) ([]framework.Port, error) {
	low, err := flags.PortValue("--min-worker-port", 0) // 0: the kernel picks the workers' ports
	if err != nil {
		return nil, err
	}
	high, err := flags.PortValue("--max-worker-port", 0)
	if err != nil {
		return nil, err
	}
	holder := map[int]string{}
	var ports []framework.Port
	for _, known := range portFlags {
		number, err := flags.PortValue(known.name, known.reserved)
		if err != nil {
			return nil, err
		}
		if number == 0 {
			continue
		}
		if other, taken := holder[number]; taken {
			return nil, fmt.Errorf("cannot use port %d for both %s and %s: choose another one "+
				"(Ray reserves 10001 and 8265, also on workers)", number, other, known.name)
		}
		if low > 0 && low <= number && number <= high {
			return nil, fmt.Errorf("cannot use port %d for %s: it is in the range of the worker "+
				"processes, %d to %d", number, known.name, low, high)
		}
		holder[number] = known.name
		if !known.ofHead || flags.HasFlag("--head") && (known.name != dashboardPortFlag || hasDashboard(flags)) {
			ports = append(ports, framework.Port{Name: known.what, Number: number})
		}
	}
	return ports, nil
}

func hasDashboard(flags framework.Arguments) bool {
	wanted, _ := flags.LastValue("--include-dashboard")
	return slices.Contains([]string{"true", "True", "1", "yes", "on"}, wanted)
}

// dashboardURL returns the URL of the dashboard of a head with these flags. It is empty if there is
// none.
func dashboardURL(node framework.Node, flags framework.Arguments) string {
	if !hasDashboard(flags) {
		return ""
	}
	host, _ := flags.LastValue("--dashboard-host")
	port, _ := flags.LastValue(dashboardPortFlag)
	// Ray's defaults
	return framework.DashboardURL(node, cmp.Or(host, "127.0.0.1"), cmp.Or(port, "8265"))
}

// checkSharedHost returns an error if every raylet of the host would need the same fixed port.
func checkSharedHost(flags framework.Arguments) error {
	perNode := []string{"--min-worker-port", "--max-worker-port"}
	for _, known := range portFlags {
		if !known.ofHead {
			perNode = append(perNode, known.name)
		}
	}
	for _, name := range perNode {
		if number, err := flags.PortValue(name, 0); err != nil || number != 0 {
			return fmt.Errorf("cannot use %s=%d for several nodes on one host: omit it, and the "+
				"kernel picks free ports", name, number)
		}
	}
	return nil
}
