package rolefile

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/roles"
)

// Limits of the numbers in a file. They are above what any allocation has.
const (
	maxRoles     = 1000
	maxNodes     = 1_000_000
	maxPerNode   = 4096
	maxGPUs      = 1024
	maxGroup     = 9999
	maxInstances = maxNodes * 64
	maxRestarts  = 100_000
)

// DefaultPort is the name of the port of a role without the key ports.
const DefaultPort = "http"

// key is a key of a role.
type key struct {
	name   string
	doc    string // what it means, for the schema
	schema schema // the values that are accepted
	read   func(r *roleReader, what string, value *yaml.Node)
}

// roleKeys are the keys of a role, in the order of the documentation. It is a function, because a
// variable would depend on itself.
func roleKeys() []key {
	return []key{
		{
			"name", "name of the role, unique in the run", nameSchema(),
			func(r *roleReader, what string, v *yaml.Node) { r.def.Name = r.name(what, v) },
		},
		{
			"nodes", "number of nodes, or rest: N and rest claim nodes in the order of the list; all and head share nodes with other roles. Default with the key with: all",
			anyOf(wholeNumber(1, maxNodes), oneOf("rest", "all", "head")), (*roleReader).readNodes,
		},
		{
			"group", "component of a heterogeneous job to which nodes refers. Default: 0", wholeNumber(0, maxGroup),
			func(r *roleReader, what string, v *yaml.Node) { r.place.Group = r.number(what, v, 0, maxGroup) },
		},
		{
			"with", "role, or roles, whose nodes this role shares", anyOf(nameSchema(), listOf(nameSchema(), 1)),
			func(r *roleReader, what string, v *yaml.Node) { r.place.With = r.nameList(what, v) },
		},
		{
			"per-node", "instances on each node: a number, or one per gpu. Default: 1", anyOf(wholeNumber(1, maxPerNode), oneOf("gpu")),
			func(r *roleReader, what string, v *yaml.Node) {
				r.place.InstancesPerNode = r.number(what, v, 1, maxPerNode, namedNumber{"gpu", roles.PerGPU})
			},
		},
		{
			"nodes-per-instance", "nodes that one instance spans. Default: 1, and all with ranks-per-node", anyOf(wholeNumber(1, maxNodes), oneOf("all")),
			func(r *roleReader, what string, v *yaml.Node) {
				r.place.NodesPerInstance = r.number(what, v, 1, maxNodes, namedNumber{"all", roles.NodesAll})
			},
		},
		{
			"ranks-per-node", "processes of an instance on each of its nodes: a number, or one per gpu. They also get the variables of ranks. Default: 1 process, without these",
			anyOf(wholeNumber(1, maxPerNode), oneOf("gpu")),
			func(r *roleReader, what string, v *yaml.Node) {
				r.place.RanksPerNode, r.place.HasRanks = r.number(what, v, 1, maxPerNode, namedNumber{"gpu", roles.PerGPU}), true
			},
		},
		{
			"gpus", "GPUs of each process, which sees no others; shared: those of a process of the role with which it is, or all that other roles leave. Default: those of the node that other roles leave, divided; for roles that share nodes 0, unless they have a process per gpu",
			anyOf(wholeNumber(0, maxGPUs), oneOf("shared")), (*roleReader).readGPUs,
		},
		{
			"segment", "the nodes are claimed in multiples of this number within NVLink domains. Default: 1", wholeNumber(1, maxNodes),
			func(r *roleReader, what string, v *yaml.Node) { r.place.Segment = r.number(what, v, 1, maxNodes) },
		},
		{
			"command", "shell text that each process runs", textSchema(),
			func(r *roleReader, what string, v *yaml.Node) { r.def.Program.Command = r.filledText(what, v) },
		},
		{
			"follower-command", "shell text of the processes of rank 1 and above of an instance. Default: command", textSchema(),
			func(r *roleReader, what string, v *yaml.Node) { r.def.Program.FollowerCommand = r.filledText(what, v) },
		},
		{
			"framework", "each instance is a cluster of its nodes; command, if any, runs on the first one when all are members", oneOf(frameworks...),
			func(r *roleReader, what string, v *yaml.Node) {
				r.def.Program.Framework = r.word(what, v, frameworks...)
			},
		},
		{"env", "variables of the processes; an empty value removes one", envSchema(), (*roleReader).readEnv},
		{
			"step", "name of the job step whose daemons start the processes", nameSchema(),
			func(r *roleReader, what string, v *yaml.Node) { r.def.Program.Step = r.name(what, v) },
		},
		{"ports", "ports of each process; the first one is its endpoint. Default: {http: auto}", portsSchema(), (*roleReader).readPorts},
		{
			"endpoints", "the processes of an instance that are probed and listed: its first one, or all. Default: leader", oneOf("leader", "all"),
			func(r *roleReader, what string, v *yaml.Node) {
				r.def.Program.AllEndpoints = r.word(what, v, "leader", "all") == "all"
			},
		},
		{
			"after", "roles that must be ready, or done if they are oneshot, before this one starts. Default: none, and for a primary all roles that are not primary",
			anyOf(nameSchema(), listOf(nameSchema(), 0)),
			func(r *roleReader, what string, v *yaml.Node) { r.def.After = r.nameList(what, v) },
		},
		{
			"oneshot", "the role is done when its processes have ended with 0. Default: false", truthSchema(),
			func(r *roleReader, what string, v *yaml.Node) { r.def.Oneshot = r.boolean(what, v) },
		},
		{
			"timeout", "how long a process of a oneshot role may run. Default: 10m", durationSchema(),
			func(r *roleReader, what string, v *yaml.Node) { r.def.Timeout = r.duration(what, v, time.Second) },
		},
		{
			"hang-timeout", "an instance of which no process has shown a sign of activity for so long is ended, and counts as exited with 124. Default: never", durationSchema(),
			func(r *roleReader, what string, v *yaml.Node) { r.def.HangTimeout = r.duration(what, v, time.Second) },
		},
		{"ready", "probe that decides when an instance is ready. Default: it is ready once it runs; timeout: 30m", probeSchema("timeout"), (*roleReader).readReady},
		{"alive", "an instance whose probe has failed for so long is killed, and counts as exited. Default: no probe; after: 60s", probeSchema("after"), (*roleReader).readAlive},
		{"restarts", "how often an instance may be started again within window. Default: 0; window: 10m; backoff: 1s..30s", restartsSchema(), (*roleReader).readRestarts},
		{"require", "number of instances that the gate needs (start), and that must not be lost (run). Default: all", requireSchema(), (*roleReader).readRequire},
		{
			"primary", "the run ends when all primaries have ended with 0. Default: false", truthSchema(),
			func(r *roleReader, what string, v *yaml.Node) { r.def.Primary = r.boolean(what, v) },
		},
		{
			"grace", "time between the stop signal and SIGKILL. Default: 10s", durationSchema(),
			func(r *roleReader, what string, v *yaml.Node) { r.def.Stop.Grace = r.duration(what, v, 0) },
		},
		{
			"stop-signal", "signal that asks the processes to end; none: only SIGKILL after grace. Default: TERM", oneOf(stopSignals...),
			func(r *roleReader, what string, v *yaml.Node) { r.def.Stop.Signal = r.word(what, v, stopSignals...) },
		},
	}
}

// frameworks are the frameworks of which an instance can be a cluster.
var frameworks = []string{"ray", "dask"}

// stopSignals are the signals that can ask a role to stop.
var stopSignals = []string{"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", roles.StopSignalNone}

// Keys returns the names of the keys of a role.
func Keys() (names []string) {
	for _, k := range roleKeys() {
		names = append(names, k.name)
	}
	return names
}

// roleReader reads one role.
type roleReader struct {
	*errorList
	def   roles.Definition
	place *roles.Placement
	given map[string]*yaml.Node // the keys that are given
	owner string                // the role's name for messages, or its position
}

// readRole reads one item of the list. It returns nil after it has refused an item that is not a
// mapping.
func (l *errorList) readRole(owner string, node *yaml.Node) *roleReader {
	fields := l.readFields(owner, `{name: judge, nodes: 2, command: …}`, node)
	if resolveAlias(node).Kind != yaml.MappingNode {
		return nil
	}
	r := &roleReader{errorList: l, given: make(map[string]*yaml.Node), owner: owner}
	r.def, r.place = newDefinition(), &r.def.Placement
	r.def.Line = node.Line
	if named := slices.IndexFunc(fields, func(f field) bool { return f.key.Value == "name" && isName(f.value.Value) }); named >= 0 {
		r.owner = "role " + fields[named].value.Value
	}
	known := roleKeys()
	for _, f := range fields {
		at := slices.IndexFunc(known, func(k key) bool { return k.name == f.key.Value })
		if at < 0 {
			r.refuse(f.key, "%s: there is no key %s%s", r.owner, show(f.key), r.suggestKey(f.key.Value, Keys()))
			continue
		}
		r.given[f.key.Value] = f.key
		known[at].read(r, r.owner+": "+f.key.Value, f.value)
	}
	return r
}

// suggestKey returns a clause with the nearest key, or with all keys if none is near.
func (l *errorList) suggestKey(word string, known []string) string {
	if nearest := suggestNearest(word, known); nearest != "" {
		return nearest
	}
	return "; the keys are " + strings.Join(known, ", ")
}

// newDefinition returns a role with the defaults that do not depend on its other keys.
func newDefinition() roles.Definition {
	return roles.Definition{
		Placement: roles.Placement{InstancesPerNode: 1, NodesPerInstance: 1, RanksPerNode: 1},
		Program:   roles.Program{Ports: []roles.PortRequest{{Name: DefaultPort, Count: 1}}},
		Ready:     roles.ReadyProbe{Timeout: roles.DefaultReadyTimeout},
		Alive:     roles.AliveProbe{After: roles.DefaultAliveAfter},
		Restarts:  roles.RestartPolicy{Window: roles.DefaultRestartWindow, MinBackoff: roles.DefaultMinBackoff, MaxBackoff: roles.DefaultMaxBackoff},
		Required:  roles.Requirement{Start: roles.QuorumAll, Run: roles.QuorumAll},
		Stop:      roles.StopPolicy{Grace: roles.DefaultGrace, Signal: "TERM"},
	}
}

func (r *roleReader) readNodes(what string, value *yaml.Node) {
	r.place.Nodes = r.number(what, value, 1, maxNodes,
		namedNumber{"rest", roles.NodesRest}, namedNumber{"all", roles.NodesAll}, namedNumber{"head", roles.NodesHead})
}

func (r *roleReader) readGPUs(what string, value *yaml.Node) {
	r.place.GPUs = r.number(what, value, 0, maxGPUs, namedNumber{"shared", roles.GPUsShared})
}

func (r *roleReader) readEnv(what string, value *yaml.Node) {
	r.def.Program.Env = make(map[string]string)
	for _, f := range r.readAllFields(what, "{HF_HOME: /scratch/hf}", value) {
		switch name := f.key.Value; {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			r.refuse(f.key, "%s: %s cannot be the name of a variable", what, show(f.key))
		case isNull(f.value): // removes the variable, as an empty text does
			r.def.Program.Env[name] = ""
		default:
			r.def.Program.Env[name] = r.text(what+": "+name, f.value)
		}
	}
}

func (r *roleReader) readPorts(what string, value *yaml.Node) {
	fields := r.readFields(what, "{http: auto}", value)
	if fields != nil || value.Kind == yaml.MappingNode {
		r.def.Program.Ports = nil
	}
	if value.Kind == yaml.MappingNode && len(fields) == 0 {
		r.refuse(value, "%s is empty: give at least one port, or omit the key for %s: auto", what, DefaultPort)
	}
	for _, f := range fields {
		request := roles.PortRequest{Name: r.name(what, f.key), Count: 1}
		switch portName := what + ": " + f.key.Value; f.value.Kind {
		case yaml.MappingNode:
			request.Count = r.readPortCount(portName, f.value)
		default:
			request.Number = r.number(portName, f.value, 1, 65535, namedNumber{"auto", 0}, namedNumber{"{count: N}", 0})
		}
		r.def.Program.Ports = append(r.def.Program.Ports, request)
	}
}

func (r *roleReader) readPortCount(what string, value *yaml.Node) int {
	count := 0
	for _, f := range r.readFields(what, "{count: 4}", value) {
		if f.key.Value != "count" {
			r.refuse(f.key, "%s: there is no key %s: give {count: N}", what, show(f.key))
			continue
		}
		count = r.number(what+": count", f.value, 1, roles.BlockSize)
	}
	if count == 0 {
		r.refuse(value, "%s has no count: give a number, auto or {count: N}", what)
	}
	return max(1, count)
}

func (r *roleReader) readReady(what string, value *yaml.Node) {
	r.def.Ready.Probe, r.def.Ready.Timeout = r.readProbe(what, "timeout", value, r.def.Ready.Timeout)
}

func (r *roleReader) readAlive(what string, value *yaml.Node) {
	r.def.Alive.Probe, r.def.Alive.After = r.readProbe(what, "after", value, r.def.Alive.After)
}

// readProbe reads a probe, or a mapping of a probe and a duration.
func (r *roleReader) readProbe(what, limitKey string, value *yaml.Node, limit time.Duration) (string, time.Duration) {
	if value.Kind != yaml.MappingNode {
		return r.filledText(what, value), limit
	}
	probe := ""
	for _, f := range r.readFields(what, "", value) {
		switch f.key.Value {
		case "probe":
			probe = r.filledText(what+": probe", f.value)
		case limitKey:
			limit = r.duration(what+": "+limitKey, f.value, time.Second)
		default:
			r.refuse(f.key, "%s: there is no key %s: give probe and %s", what, show(f.key), limitKey)
		}
	}
	if probe == "" {
		r.refuse(value, `%s has no probe: give, for example, {probe: "tcp:$BRINGUPD_PORT"}`, what)
	}
	return probe, limit
}

func (r *roleReader) readRestarts(what string, value *yaml.Node) {
	policy := &r.def.Restarts
	hasWindow := false
	if value.Kind != yaml.MappingNode {
		policy.Max = r.number(what, value, 0, maxRestarts)
	} else {
		hasMax := false
		for _, f := range r.readFields(what, "", value) {
			switch f.key.Value {
			case "max":
				policy.Max, hasMax = r.number(what+": max", f.value, 0, maxRestarts), true
			case "window":
				policy.Window, hasWindow = r.duration(what+": window", f.value, time.Second), true
			case "backoff":
				policy.MinBackoff, policy.MaxBackoff = r.interval(what+": backoff", f.value, time.Millisecond)
			default:
				r.refuse(f.key, "%s: there is no key %s: give max, window and backoff", what, show(f.key))
			}
		}
		if !hasMax {
			r.refuse(value, "%s has no max: give the number of restarts, for example {max: 3}", what)
		}
	}
	r.checkRestartWindow(what, value, hasWindow)
}

func (r *roleReader) readRequire(what string, value *yaml.Node) {
	required := &r.def.Required
	if value.Kind != yaml.MappingNode {
		required.Start = r.quorum(what, value)
		required.Run = required.Start
		return
	}
	for _, f := range r.readFields(what, "", value) {
		switch f.key.Value {
		case "start":
			required.Start = r.quorum(what+": start", f.value)
		case "run":
			required.Run = r.quorum(what+": run", f.value)
		default:
			r.refuse(f.key, "%s: there is no key %s: give start and run", what, show(f.key))
		}
	}
}

func (r *roleReader) quorum(what string, value *yaml.Node) roles.Quorum {
	return roles.Quorum(r.number(what, value, 0, maxInstances, namedNumber{"all", int(roles.QuorumAll)}, namedNumber{"any", 1}))
}
