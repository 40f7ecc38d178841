package ray

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/framework"
)

// resourcesFlag is the only flag that is merged with the user's.
const resourcesFlag = "--resources"

// startArgv returns the command line of a node's ray start; place has the flags that make it the
// head or a worker. The user's args replace the default flags, but must not replace values that the
// daemon has to know. All ports except the head's are picked by the kernel unless the user sets
// them, so that neither two jobs nor two raylets on one host conflict.
func (r Cluster) startArgv(node framework.Node, place framework.Arguments, args []string) ([]string, error) {
	extra, err := parseUserFlags(args, place.HasFlag("--head"))
	if err != nil {
		return nil, err
	}
	resources, err := mergeResources(r.nodeResources(node), extra)
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(r.defaultFlags(node, place, extra),
		func(flag string) bool { return extra.HasFlag(framework.FlagName(flag)) })
	own = append(own, resourcesFlag+"="+resources)
	extra = slices.DeleteFunc(extra, func(flag string) bool { return framework.FlagName(flag) == resourcesFlag })
	return slices.Concat([]string{programName, "start"}, own, extra), nil
}

// defaultFlags returns the default flags, without those in extra and without resources.
func (r Cluster) defaultFlags(node framework.Node, place, extra framework.Arguments) framework.Arguments {
	flags := append(framework.Arguments{
		"--block", "--disable-usage-stats", "--log-style=record", "--log-color=false",
		"--node-ip-address=" + node.Address,
		"--node-name=" + framework.NodeName(node.RunName, node.LaunchIndex), "--temp-dir=" + node.TempDir,
	}, place...)
	ports := framework.Arguments{"--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"}
	if extra.HasFlag("--min-worker-port") || extra.HasFlag("--max-worker-port") || extra.HasFlag("--worker-port-list") {
		ports = slices.DeleteFunc(ports, func(flag string) bool { return strings.Contains(flag, "-worker-port=") })
	}
	flags = append(flags, ports...)
	if node.CPUs > 0 {
		flags = append(flags, "--num-cpus="+strconv.Itoa(node.CPUs))
	}
	flags = append(flags, memoryFlags(node, extra)...)
	switch {
	case r.isDedicatedHead(node):
		flags = append(flags, "--num-gpus=0")
	case node.GPUs >= 0:
		flags = append(flags, "--num-gpus="+strconv.Itoa(node.GPUs))
	}
	return flags
}

// mergeResources returns the resources as JSON. The user's have precedence.
func mergeResources(own map[string]float64, extra framework.Arguments) (string, error) {
	if given, ok := extra.LastValue(resourcesFlag); ok {
		var users map[string]float64
		err := json.Unmarshal([]byte(given), &users)
		if err == nil && users == nil {
			err = errors.New("null is not an object")
		}
		if err != nil {
			return "", fmt.Errorf("cannot parse --resources=%s: %v; give a JSON object of names "+
				`and amounts, such as {"disk": 2}`, given, err)
		}
		maps.Copy(own, users)
	}
	text, err := json.Marshal(own)
	return string(text), err
}

// valuelessFlags are the flags of "ray start" without a value; all others have one.
var valuelessFlags = []string{
	"--head", "--block", "--no-redirect-output", "--enable-object-reconstruction", "--no-monitor",
	"--ray-debugger-external", "--disable-usage-stats", "--enable-resource-isolation", "--verbose",
	"-v", "-vv", "-vvv", "--help",
}

func parseFlags(args []string) (framework.Arguments, error) {
	return framework.ParseArguments("ray start", args, valuelessFlags, "--object-store-memory=1000000000")
}

// reservedFlags are flags that the daemon sets, with the settings to use instead.
var reservedFlags = map[string]string{
	"--head":            "bringupd chooses the head",
	"--block":           "bringupd always sets it",
	"--help":            "run ray start --help yourself",
	"--address":         "workers get the head's address from bringupd",
	"--port":            "use --framework-port",
	"--node-name":       "bringupd identifies nodes by the names that it sets",
	"--node-ip-address": "use bringupd's --interface",
	"--temp-dir":        "use bringupd's --temp-dir",
}

// headOnlyFlags are refused by Ray itself for workers.
var headOnlyFlags = []string{"--include-dashboard", "--redis-shard-ports", "--system-config"}

// parseUserFlags parses the user's arguments of ray start for the head or a worker, and returns an
// error for those that the user must not give.
func parseUserFlags(args []string, head bool) (framework.Arguments, error) {
	extra, err := parseFlags(args)
	if err == nil {
		err = extra.RejectFlags("ray start", reservedFlags)
	}
	for _, name := range headOnlyFlags {
		if err == nil && !head && extra.HasFlag(name) {
			err = fmt.Errorf("cannot pass %s to a worker's ray start: Ray accepts it for the head only", name)
		}
	}
	return extra, err
}

// maxTempDir is the maximum length of the directory for Ray's files: a socket's path has at most 107
// bytes. Another start in the same directory adds numbers to the names of the sockets.
const maxTempDir = 107 - len("/session_2006-01-02_15-04-05_000000_4194304/sockets/plasma_store.9")

const objectStoreFlag = "--object-store-memory"

// memoryFlags returns the flags for Ray's memory on a node whose job may use only a part of it. Ray
// itself considers the limit of a container, at the root of the cgroups, but not that of a step
// below it.
func memoryFlags(node framework.Node, extra framework.Arguments) framework.Arguments {
	if node.MaxMemory <= 0 {
		return nil
	}
	var shm unix.Statfs_t
	_ = unix.Statfs("/dev/shm", &shm) // on failure, the size is 0
	store := storeSize(node.MaxMemory, int64(shm.Blocks)*shm.Bsize)
	flags := framework.Arguments{objectStoreFlag + "=" + strconv.FormatInt(store, 10)}
	if given, has := extra.LastValue(objectStoreFlag); has {
		store, _ = strconv.ParseInt(given, 10, 64) // Ray reports an invalid number
	}
	if left := node.MaxMemory - store; left > 0 {
		flags = append(flags, "--memory="+strconv.FormatInt(left, 10))
	}
	return flags
}

// The constants of Ray's own rule for the size of an object store
// (ray._private.utils.resolve_object_store_memory of 2.60).
const (
	storeFraction     = 0.3
	maxStoreBytes     = 200e9
	minStoreBytes     = 75 << 20 // Ray refuses less
	shmFraction       = 0.95
	minSlowStoreBytes = 10e9 // up to this size Ray accepts a store that does not fit into /dev/shm
)

// storeSize returns the size of the object store that Ray would choose by default with so much
// memory, with a /dev/shm of shm bytes.
func storeSize(memory, shm int64) int64 {
	size := min(storeFraction*float64(memory), maxStoreBytes, max(minSlowStoreBytes, shmFraction*float64(shm)))
	return max(int64(size), minStoreBytes)
}

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
