package ray

import (
	"cmp"
	"slices"

	"github.com/bringupd/bringupd/pkg/framework"
)

// portFlags are the flags of "ray start" that set a port, in Ray's order.
var portFlags = []struct {
	name, what string // the flag, and the listener
	ofHead     bool   // only on the head
	usual      int    // the port without the flag; 0: the kernel picks one
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

// fixedPorts returns the fixed ports on which a start with these flags will listen.
func fixedPorts(flags framework.Arguments) (ports []framework.Port, err error) {
	for _, known := range portFlags {
		number, err := flags.PortValue(known.name, known.usual)
		if err != nil {
			return nil, err
		}
		isUsed := !known.ofHead || flags.HasFlag("--head") && (known.name != dashboardPortFlag || hasDashboard(flags))
		if number != 0 && isUsed {
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
