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

// key is a key of a role, with what reads its value.
type key struct {
	name string
	read func(r *roleReader, what string, value *yaml.Node)
}

// numberKey returns a key whose value is a whole number, or a word that stands for one.
func numberKey(
	name string, least, limit int, to func(r *roleReader) *int, words ...namedNumber,
) key {
	return key{name, func(r *roleReader, what string, v *yaml.Node) {
		*to(r) = r.number(what, v, least, limit, words...)
	}}
}

// valueKey returns a key whose value is read by a method of [errorList].
func valueKey[T any](
	name string, to func(r *roleReader) *T, read func(l *errorList, what string, v *yaml.Node) T,
) key {
	return key{name, func(r *roleReader, what string, v *yaml.Node) {
		*to(r) = read(r.errorList, what, v)
	}}
}

func durationKey(name string, least time.Duration, to func(r *roleReader) *time.Duration) key {
	return key{name, func(r *roleReader, what string, v *yaml.Node) {
		*to(r) = r.duration(what, v, least)
	}}
}

// wordKey returns a key whose value is one of some words.
func wordKey(name string, set func(r *roleReader, word string), words ...string) key {
	return key{name, func(r *roleReader, what string, v *yaml.Node) { set(r, r.word(what, v, words...)) }}
}

// roleKeys are the keys of a role, in the order of docs/roles.md. It is a function, because a
// variable would depend on itself.
func roleKeys() []key { return append(placementKeys(), programKeys()...) }

// placementKeys are the keys that place the instances of a role.
func placementKeys() []key {
	perGPU := namedNumber{"gpu", roles.PerGPU}
	all := namedNumber{"all", roles.NodesAll}
	return []key{
		valueKey("name", func(r *roleReader) *string { return &r.def.Name }, (*errorList).name),
		numberKey("nodes", 1, maxNodes, func(r *roleReader) *int { return &r.place.Nodes },
			namedNumber{"rest", roles.NodesRest}, all, namedNumber{"head", roles.NodesHead}),
		numberKey("group", 0, maxGroup, func(r *roleReader) *int { return &r.place.Group }),
		valueKey("with", func(r *roleReader) *[]string { return &r.place.With }, (*errorList).nameList),
		numberKey("per-node", 1, maxPerNode,
			func(r *roleReader) *int { return &r.place.InstancesPerNode }, perGPU),
		numberKey("nodes-per-instance", 1, maxNodes,
			func(r *roleReader) *int { return &r.place.NodesPerInstance }, all),
		numberKey("ranks-per-node", 1, maxPerNode, func(r *roleReader) *int {
			r.place.HasRanks = true
			return &r.place.RanksPerNode
		}, perGPU),
		numberKey("gpus", 0, maxGPUs, func(r *roleReader) *int { return &r.place.GPUs },
			namedNumber{"shared", roles.GPUsShared}),
		numberKey("segment", 1, maxNodes, func(r *roleReader) *int { return &r.place.Segment }),
	}
}

// programKeys are the keys about the processes of a role, and about what follows from their ends.
func programKeys() []key {
	return []key{
		valueKey("command", func(r *roleReader) *string { return &r.def.Program.Command },
			(*errorList).filledText),
		valueKey("follower-command",
			func(r *roleReader) *string { return &r.def.Program.FollowerCommand }, (*errorList).filledText),
		wordKey("framework",
			func(r *roleReader, word string) { r.def.Program.Framework = word }, frameworks...),
		{"env", (*roleReader).readEnv},
		valueKey("step", func(r *roleReader) *string { return &r.def.Program.Step }, (*errorList).name),
		{"ports", (*roleReader).readPorts},
		wordKey("endpoints",
			func(r *roleReader, word string) { r.def.Program.AllEndpoints = word == "all" }, "leader", "all"),
		valueKey("after", func(r *roleReader) *[]string { return &r.def.After }, (*errorList).nameList),
		valueKey("oneshot", func(r *roleReader) *bool { return &r.def.Oneshot }, (*errorList).boolean),
		durationKey("timeout", time.Second,
			func(r *roleReader) *time.Duration { return &r.def.Timeout }),
		durationKey("hang-timeout", time.Second,
			func(r *roleReader) *time.Duration { return &r.def.HangTimeout }),
		{"ready", (*roleReader).readReady},
		{"alive", (*roleReader).readAlive},
		{"restarts", (*roleReader).readRestarts},
		{"require", (*roleReader).readRequire},
		valueKey("primary", func(r *roleReader) *bool { return &r.def.Primary }, (*errorList).boolean),
		durationKey("grace", 0, func(r *roleReader) *time.Duration { return &r.def.Stop.Grace }),
		wordKey("stop-signal",
			func(r *roleReader, word string) { r.def.Stop.Signal = word }, stopSignals...),
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
	hasName := func(f field) bool { return f.key.Value == "name" && isName(f.value.Value) }
	if named := slices.IndexFunc(fields, hasName); named >= 0 {
		r.owner = "role " + fields[named].value.Value
	}
	known := roleKeys()
	for _, f := range fields {
		at := slices.IndexFunc(known, func(k key) bool { return k.name == f.key.Value })
		if at < 0 {
			r.refuse(f.key, "%s: there is no key %s%s",
				r.owner, show(f.key), r.suggestKey(f.key.Value, Keys()))
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
		Restarts: roles.RestartPolicy{
			Window:     roles.DefaultRestartWindow,
			MinBackoff: roles.DefaultMinBackoff, MaxBackoff: roles.DefaultMaxBackoff,
		},
		Required: roles.Requirement{Start: roles.QuorumAll, Run: roles.QuorumAll},
		Stop:     roles.StopPolicy{Grace: roles.DefaultGrace, Signal: "TERM"},
	}
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
		r.refuse(value, "%s is empty: give at least one port, or omit the key for %s: auto",
			what, DefaultPort)
	}
	for _, f := range fields {
		request := roles.PortRequest{Name: r.name(what, f.key), Count: 1}
		if portName := what + ": " + f.key.Value; f.value.Kind == yaml.MappingNode {
			request.Count = r.readPortCount(portName, f.value)
		} else {
			request.Number = r.number(portName, f.value, 1, 65535,
				namedNumber{"auto", 0}, namedNumber{"{count: N}", 0})
		}
		r.def.Program.Ports = append(r.def.Program.Ports, request)
	}
}

// subKeys are the keys of a mapping within a role, each with what reads its value.
type subKeys map[string]func(what string, value *yaml.Node)

// readMapping reads the keys of a mapping, of which required must be given, with a value such as the
// example. accepted lists the keys for messages.
func (r *roleReader) readMapping(
	what string, value *yaml.Node, keys subKeys, accepted, required, example string,
) {
	isGiven := false
	for _, f := range r.readFields(what, example, value) {
		read, known := keys[f.key.Value]
		if !known {
			r.refuse(f.key, "%s: there is no key %s: give %s", what, show(f.key), accepted)
			continue
		}
		isGiven = isGiven || f.key.Value == required
		read(what+": "+f.key.Value, f.value)
	}
	if required != "" && !isGiven {
		r.refuse(value, "%s has no %s: give %s", what, required, example)
	}
}

func (r *roleReader) readPortCount(what string, value *yaml.Node) (count int) {
	r.readMapping(what, value, subKeys{
		"count": func(what string, v *yaml.Node) { count = r.number(what, v, 1, roles.BlockSize) },
	}, "{count: N}", "count", "a number, auto or {count: N}")
	return max(1, count)
}

func (r *roleReader) readReady(what string, value *yaml.Node) {
	r.readProbe(what, "timeout", value, &r.def.Ready.Probe, &r.def.Ready.Timeout)
}

func (r *roleReader) readAlive(what string, value *yaml.Node) {
	r.readProbe(what, "after", value, &r.def.Alive.Probe, &r.def.Alive.After)
}

// readProbe reads a probe, or a mapping of a probe and a duration.
func (r *roleReader) readProbe(
	what, limitKey string, value *yaml.Node, probe *string, limit *time.Duration,
) {
	if value.Kind != yaml.MappingNode {
		*probe = r.filledText(what, value)
		return
	}
	r.readMapping(what, value, subKeys{
		"probe":  func(what string, v *yaml.Node) { *probe = r.filledText(what, v) },
		limitKey: func(what string, v *yaml.Node) { *limit = r.duration(what, v, time.Second) },
	}, "probe and "+limitKey, "probe", `for example {probe: "tcp:$BRINGUPD_PORT"}`)
}

func (r *roleReader) readRestarts(what string, value *yaml.Node) {
	policy := &r.def.Restarts
	hasWindow := false
	if value.Kind != yaml.MappingNode {
		policy.Max = r.number(what, value, 0, maxRestarts)
	} else {
		r.readMapping(what, value, subKeys{
			"max": func(what string, v *yaml.Node) { policy.Max = r.number(what, v, 0, maxRestarts) },
			"window": func(what string, v *yaml.Node) {
				policy.Window, hasWindow = r.duration(what, v, time.Second), true
			},
			"backoff": func(what string, v *yaml.Node) {
				policy.MinBackoff, policy.MaxBackoff = r.interval(what, v, time.Millisecond)
			},
		}, "max, window and backoff", "max", "the number of restarts, for example {max: 3}")
	}
	r.checkRestartWindow(what, value, hasWindow)
}

func (r *roleReader) readRequire(what string, value *yaml.Node) {
	required := &r.def.Required
	quorum := func(what string, v *yaml.Node) roles.Quorum {
		return roles.Quorum(r.number(what, v, 0, maxInstances,
			namedNumber{"all", int(roles.QuorumAll)}, namedNumber{"any", 1}))
	}
	if value.Kind != yaml.MappingNode {
		required.Start = quorum(what, value)
		required.Run = required.Start
		return
	}
	r.readMapping(what, value, subKeys{
		"start": func(what string, v *yaml.Node) { required.Start = quorum(what, v) },
		"run":   func(what string, v *yaml.Node) { required.Run = quorum(what, v) },
	}, "start and run", "", "")
}
