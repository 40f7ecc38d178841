package framework

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// rayStart is what one "ray start" is told.
type rayStart struct {
	Program    string // of Ray
	Head       bool
	Name       string // of the node in Ray's node table
	Address    string // of this node
	Port       int    // the head's: of the GCS
	ClientPort int    // the head's: of the Ray Client server, which Ray always starts
	GCS        string // the worker's: "host:port" to join
	TempDir    string
	CPUs       int // 0: Ray counts
	GPUs       int // -1: Ray counts
	Resources  map[string]float64
	Extra      []string // the user's own; they win
}

// resourcesFlag is the one flag that is merged with the user's.
const resourcesFlag = "--resources"

// Argv returns the command line. What the user gives replaces what would be
// given otherwise, except for what the daemon has to know itself: that is
// refused. All ports but the head's are the kernel's choice unless the user
// fixes them, so that neither two jobs nor two raylets on one host meet.
func (s rayStart) Argv() ([]string, error) {
	extra, err := parseRayFlags(s.Extra)
	if err == nil {
		err = refuseRayFlags(extra, s.Head)
	}
	if err == nil {
		err = fitsSockets(s.TempDir)
	}
	if err != nil {
		return nil, err
	}
	flags, err := s.flags(extra)
	if err != nil {
		return nil, err
	}
	argv := []string{s.Program, "start"}
	for _, flag := range flags {
		if flag.name == resourcesFlag || !extra.has(flag.name) {
			argv = append(argv, flag.String())
		}
	}
	for _, flag := range extra {
		if flag.name != resourcesFlag {
			argv = append(argv, flag.String())
		}
	}
	return argv, nil
}

// flags are the flags that would be given without the user's; resources are
// the user's too.
func (s rayStart) flags(extra rayFlags) (rayFlags, error) {
	flags := rayFlags{{name: "--block"}, {name: "--disable-usage-stats"},
		valued("--log-style", "record"), valued("--log-color", "false"),
		valued("--node-ip-address", s.Address), valued("--node-name", s.Name), valued("--temp-dir", s.TempDir)}
	if s.Head {
		flags = append(flags, rayFlag{name: "--head"}, valued("--port", strconv.Itoa(s.Port)),
			valued("--ray-client-server-port", strconv.Itoa(s.ClientPort)),
			// Ray's default costs a second of every start.
			valued("--include-dashboard", "false"))
	} else {
		flags = append(flags, valued("--address", s.GCS))
	}
	if !extra.has("--min-worker-port") && !extra.has("--max-worker-port") && !extra.has("--worker-port-list") {
		flags = append(flags, valued("--min-worker-port", "0"), valued("--max-worker-port", "0"))
	}
	flags = append(flags, valued("--dashboard-agent-listen-port", "0"))
	if s.CPUs > 0 {
		flags = append(flags, valued("--num-cpus", strconv.Itoa(s.CPUs)))
	}
	if s.GPUs >= 0 {
		flags = append(flags, valued("--num-gpus", strconv.Itoa(s.GPUs)))
	}
	resources, err := mergeResources(s.Resources, extra)
	if err != nil {
		return nil, err
	}
	if resources != "" {
		flags = append(flags, valued(resourcesFlag, resources))
	}
	return flags, nil
}

// mergeResources returns the resources as JSON, the user's over ours; empty
// where there are none.
func mergeResources(ours map[string]float64, extra rayFlags) (string, error) {
	all := make(map[string]float64, len(ours))
	maps.Copy(all, ours)
	if given, ok := extra.value(resourcesFlag); ok {
		var theirs map[string]float64
		err := json.Unmarshal([]byte(given), &theirs)
		if err == nil && theirs == nil {
			err = errors.New("null is none")
		}
		if err != nil {
			return "", fmt.Errorf(`cannot read --resources=%s: %v; a JSON object of names and amounts is accepted, as in {"disk": 2}`, given, err)
		}
		maps.Copy(all, theirs)
	}
	if len(all) == 0 {
		return "", nil
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// rayFlag is one flag of a command line.
type rayFlag struct {
	name     string // with its dashes
	value    string
	hasValue bool
}

func valued(name, value string) rayFlag { return rayFlag{name: name, value: value, hasValue: true} }

// String returns the flag as one argument.
func (f rayFlag) String() string {
	if !f.hasValue {
		return f.name
	}
	return f.name + "=" + f.value
}

type rayFlags []rayFlag

func (f rayFlags) has(name string) bool {
	_, found := f.value(name)
	return found
}

// value returns the value of the last flag of a name, as Ray itself would
// take it.
func (f rayFlags) value(name string) (value string, found bool) {
	for _, flag := range slices.Backward(f) {
		if flag.name == name {
			return flag.value, true
		}
	}
	return "", false
}

// raySwitches are the flags of "ray start" that take no value; all others do.
var raySwitches = []string{
	"--head", "--block", "--no-redirect-output", "--enable-object-reconstruction", "--no-monitor",
	"--ray-debugger-external", "--disable-usage-stats", "--enable-resource-isolation", "--verbose", "-v", "-vv", "-vvv", "--help",
}

// parseRayFlags reads "--flag=value", "--flag value" and "--switch".
func parseRayFlags(args []string) (rayFlags, error) {
	var flags rayFlags
	for i := 0; i < len(args); i++ {
		name, value, hasValue := strings.Cut(args[i], "=")
		if !strings.HasPrefix(name, "-") || strings.Trim(name, "-") == "" {
			return nil, fmt.Errorf("cannot pass %q to ray start: it takes flags only, as in --object-store-memory=1000000000", args[i])
		}
		if !hasValue && !slices.Contains(raySwitches, name) {
			if i++; i == len(args) {
				return nil, fmt.Errorf("cannot pass %s to ray start: it has no value; give %s=VALUE", name, name)
			}
			value, hasValue = args[i], true
		}
		flags = append(flags, rayFlag{name: name, value: value, hasValue: hasValue})
	}
	return flags, nil
}

// ownRayFlags are the daemon's own, with what to give instead.
var ownRayFlags = map[string]string{
	"--head":            "the first rank is the head",
	"--block":           "it is always given",
	"--help":            "run ray start --help yourself",
	"--address":         "workers are told the head's address",
	"--port":            "give --ray-port",
	"--node-name":       "nodes are counted by the names that bringupd gives them",
	"--node-ip-address": "give --interface",
	"--temp-dir":        "give --temp-dir to bringupd",
}

// headRayFlags are refused by Ray itself in a worker's start.
var headRayFlags = []string{"--include-dashboard", "--redis-shard-ports", "--system-config"}

func refuseRayFlags(extra rayFlags, head bool) error {
	for _, flag := range extra {
		if instead, own := ownRayFlags[flag.name]; own {
			return fmt.Errorf("cannot pass %s to ray start: %s", flag.name, instead)
		}
		if !head && slices.Contains(headRayFlags, flag.name) {
			return fmt.Errorf("cannot pass %s to a worker's ray start: Ray takes it for the head only", flag.name)
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
