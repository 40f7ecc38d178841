package ray

import (
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/bringupd/bringupd/pkg/framework"
)

// portFlags are the flags of "ray start" that fix a port, in Ray's order,
// and what listens there.
var portFlags = []struct{ flag, what string }{
	{"--port", "Ray's GCS"},
	{"--ray-client-server-port", "the Ray Client server"},
	{"--dashboard-port", "Ray's dashboard"},
	{"--object-manager-port", "Ray's object manager"},
	{"--node-manager-port", "Ray's node manager"},
	{"--dashboard-agent-grpc-port", "Ray's dashboard agent (gRPC)"},
	{"--dashboard-agent-listen-port", "Ray's dashboard agent (HTTP)"},
	{"--runtime-env-agent-port", "Ray's runtime environment agent"},
	{"--metrics-export-port", "Ray's metrics"},
}

// reservedPorts are the ports that Ray takes for given on every node, a worker
// too, which never opens them: they clash with flags all the same.
var reservedPorts = map[string]int{"--ray-client-server-port": 10001, "--dashboard-port": 8265}

// fixedPorts returns the fixed ports that a start with this command line will
// listen on. It fails where two of them are the same, or one is in the range of
// the worker processes: Ray would, after a second, with a traceback.
func fixedPorts(argv []string) ([]framework.Port, error) {
	flags, err := parseFlags(argv[2:])
	if err != nil {
		return nil, err
	}
	low, high, err := workerPorts(flags)
	if err != nil {
		return nil, err
	}
	holder := map[int]string{}
	var ports []framework.Port
	for _, known := range portFlags {
		number, given, err := portFlag(flags, known.flag)
		if err != nil {
			return nil, err
		}
		if !given {
			number = reservedPorts[known.flag]
		}
		if number == 0 {
			continue
		}
		if other, taken := holder[number]; taken {
			return nil, fmt.Errorf("cannot give port %d to both %s and %s (on a worker too Ray keeps 10001 and 8265 for itself): give another one", number, other, known.flag)
		}
		if low <= number && number <= high {
			return nil, fmt.Errorf("cannot give port %d to %s: it is one of the worker processes', %d to %d", number, known.flag, low, high)
		}
		holder[number] = known.flag
		if listens(flags, known.flag) {
			ports = append(ports, framework.Port{Name: known.what, Number: number})
		}
	}
	return ports, nil
}

// listens tells whether the start will listen on the port of a flag.
func listens(flags startFlags, flag string) bool {
	switch flag {
	case "--dashboard-port":
		wanted, _ := flags.value("--include-dashboard")
		return flags.has("--head") && slices.Contains([]string{"true", "True", "1", "yes", "on"}, wanted)
	case "--ray-client-server-port":
		return flags.has("--head")
	default:
		return true
	}
}

// workerPorts returns the range that worker processes take their ports from;
// 0, 0 where the kernel gives them.
func workerPorts(flags startFlags) (low, high int, err error) {
	low, _, err = portFlag(flags, "--min-worker-port")
	if err == nil {
		high, _, err = portFlag(flags, "--max-worker-port")
	}
	if err == nil && low == 0 {
		high = 0
	}
	return low, high, err
}

// portFlag returns the port that a flag fixes; 0 is the kernel's choice.
func portFlag(flags startFlags, name string) (number int, given bool, err error) {
	value, given := flags.value(name)
	if !given {
		return 0, false, nil
	}
	number, err = strconv.Atoi(value)
	if err != nil || number < 0 || number > 65535 {
		return 0, false, fmt.Errorf("cannot use %s=%s: a port is a number of 0 to 65535", name, value)
	}
	return number, true, nil
}

// aloneOnHost returns an error where a fixed port would be asked for by every
// raylet of the host.
func aloneOnHost(argv []string) error {
	flags, err := parseFlags(argv[2:])
	if err != nil {
		return err
	}
	perNode := []string{"--min-worker-port", "--max-worker-port"}
	for _, known := range portFlags {
		if known.flag != "--port" && known.flag != "--ray-client-server-port" && known.flag != "--dashboard-port" {
			perNode = append(perNode, known.flag)
		}
	}
	for _, flag := range perNode {
		if number, _, err := portFlag(flags, flag); err != nil || number != 0 {
			return fmt.Errorf("cannot use %s=%d for several nodes on one host: leave it out, and the kernel picks", flag, number)
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
