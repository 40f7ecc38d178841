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

// resourcesFlag is the one flag that is merged with the user's.
const resourcesFlag = "--resources"

// argv returns the command line of a node's ray start; place are the flags that
// make it the head's or a worker's. The user's args replace what would be given
// otherwise, except for what the daemon has to know itself: that is refused. All
// ports but the head's are the kernel's choice unless the user fixes them, so
// that neither two jobs nor two raylets on one host meet.
func (r Cluster) argv(node framework.Node, place startFlags, args []string) ([]string, error) {
	extra, err := parseFlags(args)
	if err == nil {
		err = refuseFlags(extra, place.has("--head"))
	}
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
		if !extra.has(nameOf(flag)) {
			argv = append(argv, flag)
		}
	}
	argv = append(argv, resourcesFlag+"="+resources)
	for _, flag := range extra {
		if nameOf(flag) != resourcesFlag {
			argv = append(argv, flag)
		}
	}
	return argv, nil
}

// flags are the flags that would be given without the user's extra ones, but for
// resources.
func (r Cluster) flags(node framework.Node, place, extra startFlags) startFlags {
	flags := append(startFlags{
		"--block", "--disable-usage-stats", "--log-style=record", "--log-color=false", "--node-ip-address=" + node.Address,
		"--node-name=" + nodeName(node.Attempt, node.LaunchRank), "--temp-dir=" + node.TempDir,
	}, place...)
	if !extra.has("--min-worker-port") && !extra.has("--max-worker-port") && !extra.has("--worker-port-list") {
		flags = append(flags, "--min-worker-port=0", "--max-worker-port=0")
	}
	flags = append(flags, "--dashboard-agent-listen-port=0")
	if node.CPUs > 0 {
		flags = append(flags, "--num-cpus="+strconv.Itoa(node.CPUs))
	}
	switch {
	case r.dedicated(node):
		flags = append(flags, "--num-gpus=0")
	case node.GPUs >= 0:
		flags = append(flags, "--num-gpus="+strconv.Itoa(node.GPUs))
	}
	return flags
}

// mergeResources returns the resources as JSON, the user's over ours.
func mergeResources(ours map[string]float64, extra startFlags) (string, error) {
	if given, ok := extra.value(resourcesFlag); ok {
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

// startFlags are flags of "ray start", each one argument: "--flag=value" or
// "--switch".
type startFlags []string

// nameOf returns the name of a flag, with its dashes.
func nameOf(flag string) string {
	name, _, _ := strings.Cut(flag, "=")
	return name
}

func (f startFlags) has(name string) bool {
	_, found := f.value(name)
	return found
}

// value returns the value of the last flag of a name, as Ray itself would
// take it.
func (f startFlags) value(name string) (value string, found bool) {
	for _, flag := range slices.Backward(f) {
		if has, value, _ := strings.Cut(flag, "="); has == name {
			return value, true
		}
	}
	return "", false
}

// switches are the flags of "ray start" that take no value; all others do.
var switches = []string{
	"--head", "--block", "--no-redirect-output", "--enable-object-reconstruction", "--no-monitor",
	"--ray-debugger-external", "--disable-usage-stats", "--enable-resource-isolation", "--verbose", "-v", "-vv", "-vvv", "--help",
}

// parseFlags reads "--flag=value", "--flag value" and "--switch".
func parseFlags(args []string) (startFlags, error) {
	var flags startFlags
	for i := 0; i < len(args); i++ {
		flag := args[i]
		name, _, hasValue := strings.Cut(flag, "=")
		if !strings.HasPrefix(name, "-") || strings.Trim(name, "-") == "" {
			return nil, fmt.Errorf("cannot pass %q to ray start: it takes flags only, as in --object-store-memory=1000000000", flag)
		}
		if !hasValue && !slices.Contains(switches, name) {
			if i++; i == len(args) {
				return nil, fmt.Errorf("cannot pass %s to ray start: it has no value; give %s=VALUE", name, name)
			}
			flag = name + "=" + args[i]
		}
		flags = append(flags, flag)
	}
	return flags, nil
}

// ownFlags are the daemon's own, with what to give instead.
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

// headFlags are refused by Ray itself in a worker's start.
var headFlags = []string{"--include-dashboard", "--redis-shard-ports", "--system-config"}

func refuseFlags(extra startFlags, head bool) error {
	for _, flag := range extra {
		name := nameOf(flag)
		if instead, own := ownFlags[name]; own {
			return fmt.Errorf("cannot pass %s to ray start: %s", name, instead)
		}
		if !head && slices.Contains(headFlags, name) {
			return fmt.Errorf("cannot pass %s to a worker's ray start: Ray takes it for the head only", name)
		}
	}
	return nil
}

// fitsSockets returns an error where Ray's sockets in dir would have names that
// are longer than a socket's may be: 107 bytes. A second start in the same
// directory numbers them.
func fitsSockets(dir string) error {
	const longest, below = 107, "/session_2006-01-02_15-04-05_000000_4194304/sockets/plasma_store.9"
	if limit := longest - len(below); len(dir) > limit {
		return fmt.Errorf("cannot use %s for Ray's sockets: it is %d bytes long, and %d at most are accepted; give a shorter --temp-dir", dir, len(dir), limit)
	}
	return nil
}
