package ray

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"

	"github.com/bringupd/bringupd/pkg/framework"
)

// portFlags are the flags of "ray start" that fix a port, in Ray's order.
var portFlags = []struct {
	name, what string // the flag, and what listens there
	ofHead     bool   // nothing does on a worker
	// reserved is the port that Ray takes for given on every node, a worker too,
	// which never opens it: it clashes with flags all the same.
	reserved int
}{
	{"--port", "Ray's GCS", true, 0},
	{"--ray-client-server-port", "the Ray Client server", true, 10001},
	{dashboardPort, "Ray's dashboard", true, 8265},
	{"--object-manager-port", "Ray's object manager", false, 0},
	{"--node-manager-port", "Ray's node manager", false, 0},
	{"--dashboard-agent-grpc-port", "Ray's dashboard agent (gRPC)", false, 0},
	{"--dashboard-agent-listen-port", "Ray's dashboard agent (HTTP)", false, 0},
	{"--runtime-env-agent-port", "Ray's runtime environment agent", false, 0},
	{"--metrics-export-port", "Ray's metrics", false, 0},
}

const dashboardPort = "--dashboard-port"

// fixedPorts returns the fixed ports that a start with these flags will listen
// on. It fails where two of them are the same, or one is in the range of the
// worker processes: Ray would, after a second, with a traceback.
func fixedPorts(flags startFlags) ([]framework.Port, error) {
	low, err := flags.port("--min-worker-port", 0) // 0: the kernel gives workers theirs
	if err != nil {
		return nil, err
	}
	high, err := flags.port("--max-worker-port", 0)
	if err != nil {
		return nil, err
	}
	holder := map[int]string{}
	var ports []framework.Port
	for _, known := range portFlags {
		number, err := flags.port(known.name, known.reserved)
		if err != nil {
			return nil, err
		}
		if number == 0 {
			continue
		}
		if other, taken := holder[number]; taken {
			return nil, fmt.Errorf("cannot give port %d to both %s and %s (on a worker too Ray keeps 10001 and 8265 for itself): give another one", number, other, known.name)
		}
		if low > 0 && low <= number && number <= high {
			return nil, fmt.Errorf("cannot give port %d to %s: it is one of the worker processes', %d to %d", number, known.name, low, high)
		}
		holder[number] = known.name
		if !known.ofHead || flags.has("--head") && (known.name != dashboardPort || flags.haveDashboard()) {
			ports = append(ports, framework.Port{Name: known.what, Number: number})
		}
	}
	return ports, nil
}

func (f startFlags) haveDashboard() bool {
	wanted, _ := f.value("--include-dashboard")
	return slices.Contains([]string{"true", "True", "1", "yes", "on"}, wanted)
}

// port returns the port that a flag fixes, or another one where it isn't given;
// 0 is the kernel's choice.
func (f startFlags) port(name string, otherwise int) (int, error) {
	value, given := f.value(name)
	if !given {
		return otherwise, nil
	}
	number, err := strconv.Atoi(value)
	if err != nil || number < 0 || number > math.MaxUint16 {
		return 0, fmt.Errorf("cannot use %s=%s: a port is a number of 0 to 65535", name, value)
	}
	return number, nil
}

// aloneOnHost returns an error where a fixed port would be asked for by every
// raylet of the host.
func aloneOnHost(flags startFlags) error {
	perNode := []string{"--min-worker-port", "--max-worker-port"}
	for _, known := range portFlags {
		if !known.ofHead {
			perNode = append(perNode, known.name)
		}
	}
	for _, name := range perNode {
		if number, err := flags.port(name, 0); err != nil || number != 0 {
			return fmt.Errorf("cannot use %s=%d for several nodes on one host: leave it out, and the kernel picks", name, number)
		}
	}
	return nil
}

// freePorts returns n ports that nobody listens on right now, all different.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		// Kept open until all are found: that is what makes them differ.
		held, err := net.Listen("tcp", ":0")
		if err != nil {
			return nil, fmt.Errorf("cannot find a free port: %v", err)
		}
		defer func() { _ = held.Close() }()
		ports = append(ports, held.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
