package ray

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
)

// resourcesFlag is the only flag that is merged with the user's.
const resourcesFlag = "--resources"

// argv returns the command line of a node's ray start; place has the flags that make it the head or
// a worker. The user's args replace the default flags, but must not replace values that the daemon
// has to know. All ports except the head's are picked by the kernel unless the user sets them, so
// that neither two jobs nor two raylets on one host conflict.
func (r Cluster) argv(node framework.Node, place framework.Arguments, args []string) ([]string, error) {
	extra, err := usersFlags(args, place.Has("--head"))
	if err == nil {
		err = fitsSockets(node.TempDir)
	}
	if err != nil {
		return nil, err
	}
	resources, err := mergeResources(r.resources(node), extra)
	if err != nil {
		return nil, err
	}
	argv := []string{r.program(), "start"}
	for _, flag := range r.flags(node, place, extra) {
		if !extra.Has(framework.FlagName(flag)) {
			argv = append(argv, flag)
		}
	}
	argv = append(argv, resourcesFlag+"="+resources)
	for _, flag := range extra {
		if framework.FlagName(flag) != resourcesFlag {
			argv = append(argv, flag)
		}
	}
	return argv, nil
}

// flags returns the default flags, without those in extra and without resources.
func (r Cluster) flags(node framework.Node, place, extra framework.Arguments) framework.Arguments {
	flags := append(framework.Arguments{
		"--block", "--disable-usage-stats", "--log-style=record", "--log-color=false", "--node-ip-address=" + node.Address,
		"--node-name=" + framework.NodeName(node.Attempt, node.LaunchRank), "--temp-dir=" + node.TempDir,
	}, place...)
	ports := framework.Arguments{"--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"}
	if r.Ports > 0 {
		ports = portBlock(r.Ports, place.Has("--head"))
	}
	if extra.Has("--min-worker-port") || extra.Has("--max-worker-port") || extra.Has("--worker-port-list") {
		ports = slices.DeleteFunc(ports, func(flag string) bool { return strings.Contains(flag, "-worker-port=") })
	}
	flags = append(flags, ports...)
	if node.CPUs > 0 {
		flags = append(flags, "--num-cpus="+strconv.Itoa(node.CPUs))
	}
	flags = append(flags, memoryFlags(node, extra)...)
	switch {
	case r.dedicated(node):
		flags = append(flags, "--num-gpus=0")
	case node.GPUs >= 0:
		flags = append(flags, "--num-gpus="+strconv.Itoa(node.GPUs))
	}
	return flags
}

// mergeResources returns the resources as JSON. The user's have precedence.
func mergeResources(ours map[string]float64, extra framework.Arguments) (string, error) {
	if given, ok := extra.Value(resourcesFlag); ok {
		var theirs map[string]float64
		err := json.Unmarshal([]byte(given), &theirs)
		if err == nil && theirs == nil {
			err = errors.New("null is none")
		}
		if err != nil {
			return "", fmt.Errorf(`cannot read --resources=%s: %v; a JSON object of names and amounts is accepted, as in {"disk": 2}`, given, err)
		}
		maps.Copy(ours, theirs)
	}
	text, err := json.Marshal(ours)
	return string(text), err
}

// switches are the flags of "ray start" without a value; all others have one.
var switches = []string{
	"--head", "--block", "--no-redirect-output", "--enable-object-reconstruction", "--no-monitor",
	"--ray-debugger-external", "--disable-usage-stats", "--enable-resource-isolation", "--verbose", "-v", "-vv", "-vvv", "--help",
}

// parseFlags parses the user's arguments of "ray start".
func parseFlags(args []string) (framework.Arguments, error) {
	return framework.ParseArguments("ray start", args, switches, "--object-store-memory=1000000000")
}

// ownFlags are flags that the daemon sets, with the settings to use instead.
var ownFlags = map[string]string{
	"--head":            "the first rank is the head",
	"--block":           "it is always given",
	"--help":            "run ray start --help yourself",
	"--address":         "workers are told the head's address",
	"--port":            "give --ray-port",
	"--node-name":       "nodes are counted by the names that bringupd gives them",
	"--node-ip-address": "give --interface",
	"--temp-dir":        "give --temp-dir to bringupd",
}

// headFlags are refused by Ray itself for workers.
var headFlags = []string{"--include-dashboard", "--redis-shard-ports", "--system-config"}

// usersFlags parses the user's arguments of ray start for the head or a worker, and returns an
// error for those that the user must not give.
func usersFlags(args []string, head bool) (framework.Arguments, error) {
	extra, err := parseFlags(args)
	if err == nil {
		err = refuseFlags(extra, head)
	}
	return extra, err
}

func refuseFlags(extra framework.Arguments, head bool) error {
	if err := extra.Refuse("ray start", ownFlags); err != nil || head {
		return err
	}
	for _, name := range headFlags {
		if extra.Has(name) {
			return fmt.Errorf("cannot pass %s to a worker's ray start: Ray takes it for the head only", name)
		}
	}
	return nil
}

// fitsSockets returns an error if the paths of Ray's sockets in dir would exceed the maximum of 107
// bytes. Another start in the same directory adds numbers to them.
func fitsSockets(dir string) error {
	const longest, below = 107, "/session_2006-01-02_15-04-05_000000_4194304/sockets/plasma_store.9"
	if limit := longest - len(below); len(dir) > limit {
		return fmt.Errorf("cannot use %s for Ray's sockets: it is %d bytes long, and %d at most are accepted; give a shorter --temp-dir", dir, len(dir), limit)
	}
	return nil
}
