package rolefile

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
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
	maxMisses    = 1000
)

// ExtensionPrefix begins keys that are ignored: their values may have anchors.
const ExtensionPrefix = "x-"

// DefaultPort is the name of the port of a role without the key ports.
const DefaultPort = "http"

// frameworks are the frameworks of which an instance can be a cluster.
var frameworks = []string{"ray", "dask"}

var stopSignals = []string{"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", roles.StopSignalNone}

// Words that stand for numbers.
var (
	wordAll    = namedNumber{"all", roles.NodesAll}
	wordPerGPU = namedNumber{"gpu", roles.PerGPU}
	nodesWords = []namedNumber{
		{"rest", roles.NodesRest}, wordAll, {"head", roles.NodesHead}, {"others", roles.NodesOthers},
	}
	ranksWords  = []namedNumber{wordPerGPU, {"numa", roles.PerNUMA}, {"core", roles.PerCore}}
	gpusWords   = []namedNumber{{"divided", roles.GPUsDivided}, {"shared", roles.GPUsShared}, {"all", roles.GPUsAll}}
	quorumWords = []namedNumber{{"all", int(roles.QuorumAll)}, {"any", 1}}
)

// key is a key of a mapping, with what reads its value. what names the key in messages.
type key struct {
	name string
	read func(what string, value *yaml.Node)
}

// into returns a key whose value is read by a function.
func into[T any](name string, to *T, read func(what string, value *yaml.Node) T) key {
	return key{name, func(what string, value *yaml.Node) { *to = read(what, value) }}
}

type roleReader struct {
	*errorList
	def   roles.Definition
	place *roles.Placement
	given map[string]*yaml.Node // the keys that are given
	env   []field               // fields of the key env
	owner string                // the role's name for messages
}

// keys are the keys of a role, in the order of docs/roles.md.
func (r *roleReader) keys() []key {
	def, place, program, second := &r.def, r.place, &r.def.Program, r.duration(time.Second)
	return []key{
		into("name", &def.Name, r.name),
		into("nodes", &place.Nodes, r.number(1, maxNodes, nodesWords...)),
		into("group", &place.Group, r.number(0, maxGroup)),
		into("with", &place.With, r.nameList),
		into("per-node", &place.InstancesPerNode, r.number(1, maxPerNode, wordPerGPU)),
		into("nodes-per-instance", &place.NodesPerInstance, r.number(1, maxNodes, wordAll)),
		into("ranks-per-node", &place.RanksPerNode, r.number(1, maxPerNode, ranksWords...)),
		into("ranks", &place.Ranks, r.number(1, maxInstances)),
		into("on-rank-failure", &place.RanksGoOn, func(what string, value *yaml.Node) bool {
			return r.word("end", "continue")(what, value) == "continue"
		}),
		into("gpus", &place.GPUs, r.number(0, maxGPUs, gpusWords...)),
		into("segment", &place.Segment, r.number(1, maxNodes)),
		into("command", &program.Command, r.command),
		into("follower-command", &program.FollowerCommand, r.command),
		into("shell", &program.Shell, r.filledText),
		into("framework", &program.Framework, r.word(frameworks...)),
		{"env", r.readEnv},
		into("step", &program.Step, r.name),
		{"ports", r.readPorts},
		into("endpoints", &program.AllEndpoints, func(what string, value *yaml.Node) bool {
			return r.word("leader", "all")(what, value) == "all"
		}),
		into("after", &def.After, r.nameList),
		{"oneshot", func(what string, value *yaml.Node) {
			word := r.word("true", "false", "node")(what, value)
			def.Oneshot, def.PreparesNode = word == "true" || word == "node", word == "node"
		}},
		into("timeout", &def.Timeout, second),
		into("hang-timeout", &def.HangTimeout, second),
		{"ready", r.probe("timeout", &def.Ready.Probe, &def.Ready.Timeout, &def.Ready.ProbeLimits)},
		{"alive", r.probe("after", &def.Alive.Probe, &def.Alive.After, &def.Alive.ProbeLimits)},
		{"restarts", r.readRestarts},
		{"require", r.readRequire},
		into("primary", &def.Primary, r.boolean),
		into("grace", &def.Stop.Grace, r.duration(0)),
		into("stop-signal", &def.Stop.Signal, r.word(stopSignals...)),
	}
}

// Keys returns the names of the keys of a role.
func Keys() []string { return keyNames(newReader(newErrorList(), "").keys()) }

func keyNames(keys []key) []string {
	return textutil.MapSlice(keys, func(k key) string { return k.name })
}

// readKeys reads the fields of a mapping, and returns those that are given.
func (l *errorList) readKeys(what string, fields []field, keys ...key) map[string]*yaml.Node {
	given := make(map[string]*yaml.Node)
	for _, f := range fields {
		name := f.key.Value
		if strings.HasPrefix(name, ExtensionPrefix) {
			continue
		}
		at := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
		if at < 0 {
			names := keyNames(keys)
			list := "; the keys are " + strings.Join(names, ", ")
			if l.listed[list] {
				list = ""
			}
			hint := cmp.Or(suggestSynonym(name, names), suggestNearest(name, names), list)
			l.listed[list] = l.listed[list] || hint == list
			l.refuse(f.key, "%s: there is no key %s%s", what, show(f.key), hint)
			continue
		}
		given[name] = f.key
		keys[at].read(what+": "+name, f.value)
	}
	return given
}

// synonyms are words for keys in other programs, such as compose and Kubernetes, and in the words of
// launchers. The key ends at the first comma or colon.
var synonyms = map[string]string{
	"component": "group", "het-group": "group", "nodeSelector": "group",
	"replicas": "per-node", "instances": "per-node", "count": "per-node", "scale": "per-node",
	"parallelism": "per-node", "completions": "per-node",
	"gpu": "gpus", "gpus-per-node": "gpus", "resources": "gpus",
	"cmd": "command", "args": "command", "run": "command", "entrypoint": "command",
	"working_dir": "command: cd DIRECTORY; …", "workingDir": "command: cd DIRECTORY; …",
	"depends_on": "after", "depends-on": "after", "dependsOn": "after", "needs": "after",
	"restart": "restarts", "restartPolicy": "restarts", "restart_policy": "restarts", "backoffLimit": "restarts",
	"health": "ready", "healthcheck": "ready", "readiness": "ready", "readinessProbe": "ready",
	"startupProbe": "ready", "liveness": "alive", "livenessProbe": "alive",
	"environment": "env", "port": "ports", "expose": "ports", "setup": "oneshot",
	"container": "step, whose srun has --container-image", "image": "step, whose srun has --container-image",
	"stop_grace_period": "grace", "terminationGracePeriodSeconds": "grace", "stop_signal": "stop-signal",
	"executable": "shell", "activeDeadlineSeconds": "timeout",
	"test": "probe", "httpGet": "probe", "exec": "probe", "tcpSocket": "probe",
	"timeoutSeconds": "try", "failureThreshold": "misses", "retries": "misses", "start_period": "timeout",
}

// suggestSynonym returns a clause with the key that an unknown word means, or an empty string.
func suggestSynonym(word string, known []string) string {
	meant := synonyms[word]
	if end := strings.IndexAny(meant+",", ",:"); slices.Contains(known, meant[:end]) {
		return "; did you mean " + meant + "?"
	}
	return ""
}

// NewDefinition returns a role with the defaults that do not depend on its other keys.
func NewDefinition() roles.Definition { return newReader(newErrorList(), "").def }

// newReader returns a reader of a role with the defaults that do not depend on its other keys.
func newReader(l *errorList, owner string) *roleReader {
	r := &roleReader{errorList: l, owner: owner, def: roles.Definition{
		Placement: roles.Placement{InstancesPerNode: 1, NodesPerInstance: 1, RanksPerNode: 1},
		Program:   roles.Program{Ports: []roles.PortRequest{{Name: DefaultPort, Count: 1}}},
		Ready: roles.ReadyProbe{Timeout: roles.DefaultReadyTimeout,
			ProbeLimits: roles.DefaultLimits(roles.DefaultReadyTimeout)},
		Alive: roles.AliveProbe{After: roles.DefaultAliveAfter,
			ProbeLimits: roles.DefaultLimits(roles.DefaultAliveAfter)},
		Restarts: roles.RestartPolicy{
			Window:     roles.DefaultRestartWindow,
			MinBackoff: roles.DefaultMinBackoff, MaxBackoff: roles.DefaultMaxBackoff,
		},
		Required: roles.Requirement{Start: roles.QuorumAll, Run: roles.QuorumAll},
		Stop:     roles.StopPolicy{Grace: roles.DefaultGrace, Signal: "TERM"},
	}}
	r.place = &r.def.Placement
	return r
}

// readRole reads one item of the list. It returns nil after it has refused an item that is not a
// mapping.
func (l *errorList) readRole(owner string, node *yaml.Node) *roleReader {
	fields := l.readFields(owner, `{name: judge, nodes: 2, command: …}`, node)
	if resolveAlias(node).Kind != yaml.MappingNode {
		return nil
	}
	r := newReader(l, owner)
	r.def.Line = node.Line
	hasName := func(f field) bool {
		return f.key.Value == "name" && f.value.Kind == yaml.ScalarNode && f.value.Value != ""
	}
	if named := slices.IndexFunc(fields, hasName); named >= 0 {
		r.owner = "role " + textutil.SingleLine(fields[named].value.Value, maxNameLength)
	}
	r.given = l.readKeys(r.owner, fields, r.keys()...)
	return r
}

// variablePattern matches the names of variables that shells pass on.
var variablePattern = textutil.CompileLazily(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (r *roleReader) readEnv(what string, value *yaml.Node) {
	r.def.Program.Env = make(map[string]string)
	r.env = r.readAllFields(what, "{HF_HOME: /scratch/hf}", value)
	for _, f := range r.env {
		switch name := f.key.Value; {
		case !variablePattern().MatchString(name):
			r.refuse(f.key, "%s: %s cannot be the name of a variable: give letters, digits and _", what, show(f.key))
		case isNull(f.value): // removes the variable, as an empty text does
			r.def.Program.Env[name] = ""
		default:
			r.def.Program.Env[name] = r.text(what+": "+name, f.value)
		}
	}
}

// checkReferences refuses variables of bringupd in env and probes that no process gets, and those in env
// that would replace one that it gets.
func (r *roleReader) checkReferences(all []roles.Definition) {
	if r.def.PreparesNode {
		return
	}
	known := roles.VariableNames(all, &r.def)
	for _, f := range r.env {
		name, text := f.key.Value, r.def.Program.Env[f.key.Value]
		if text != "" && (slices.Contains(known, name) || slices.Contains(commandVariables, name)) {
			r.refuse(f.key, "%s: env: %s is set by bringupd: omit it, or give your variable another name",
				r.owner, name)
		}
		if err := launcher.CheckRankVariable(name, text); err != nil && r.def.Placement.HasRanks {
			r.refuse(f.key, "%s: env: %s: %v", r.owner, name, err)
		}
		for _, clause := range roles.UnknownVariables(text, known) {
			r.refuse(f.value, "%s: env: %s: %s", r.owner, name, clause)
		}
	}
	for _, probe := range []struct{ key, text string }{{"ready", r.def.Ready.Probe}, {"alive", r.def.Alive.Probe}} {
		for _, clause := range roles.UnknownVariables(probe.text, known) {
			r.refuseKey(probe.key, "%s: %s", probe.key, clause)
		}
	}
}

func (r *roleReader) readPorts(what string, value *yaml.Node) {
	ports := &r.def.Program.Ports
	*ports = nil
	for _, f := range r.readFields(what, "{http: auto}", value) {
		request := roles.PortRequest{Name: r.name(what, f.key), Count: 1}
		if portName := what + ": " + f.key.Value; f.value.Kind == yaml.MappingNode {
			r.readMapping(portName, f.value, "count", "a number, auto or {count: N}",
				into("count", &request.Count, r.number(1, roles.BlockSize)))
		} else {
			request.Number = r.number(1, 65535,
				namedNumber{"auto", 0}, namedNumber{"{count: N}", 0})(portName, f.value)
		}
		*ports = append(*ports, request)
	}
}

// readMapping reads the keys of a mapping, of which one may be required, with a value such as the
// example.
func (r *roleReader) readMapping(
	what string, value *yaml.Node, required, example string, keys ...key,
) map[string]*yaml.Node {
	given := r.readKeys(what, r.readFields(what, example, value), keys...)
	if required != "" && given[required] == nil {
		r.refuse(value, "%s has no %s: give %s", what, required, example)
	}
	return given
}

// probe returns what reads a probe, or a mapping of a probe, a duration and the limits of its tries. Only
// ready can have a duration without a probe.
func (r *roleReader) probe(limitKey string, probe *string, limit *time.Duration,
	limits *roles.ProbeLimits) func(string, *yaml.Node) {
	return func(what string, value *yaml.Node) {
		if value.Kind != yaml.MappingNode {
			*probe = r.filledText(what, value)
			return
		}
		given := r.readMapping(what, value, "", "", into("probe", probe, r.filledText),
			into(limitKey, limit, r.duration(time.Second)), into("try", &limits.Try, r.duration(time.Second)),
			into("misses", &limits.Misses, r.number(1, maxMisses)))
		isAlive := limit == &r.def.Alive.After
		if isAlive && given["try"] == nil {
			limits.Try = roles.DefaultLimits(*limit).Try
		}
		if given["probe"] == nil && (isAlive || given["try"] != nil || given["misses"] != nil) {
			r.refuse(value, `%s has no probe: give for example {probe: "tcp:$BRINGUPD_PORT"}`, what)
		}
	}
}

func (r *roleReader) readRestarts(what string, value *yaml.Node) {
	policy := &r.def.Restarts
	restarts := into("max", &policy.Max, r.number(0, maxRestarts))
	hasWindow := false
	if value.Kind != yaml.MappingNode {
		restarts.read(what, value)
	} else {
		given := r.readMapping(what, value, "max", "the number of restarts, for example {max: 3}",
			restarts, into("window", &policy.Window, r.duration(time.Second)),
			key{"backoff", func(what string, v *yaml.Node) {
				policy.MinBackoff, policy.MaxBackoff = r.interval(what, v, time.Millisecond)
			}})
		hasWindow = given["window"] != nil
	}
	r.checkRestartWindow(what, value, hasWindow)
}

func (r *roleReader) readRequire(what string, value *yaml.Node) {
	required := &r.def.Required
	number := r.number(0, maxInstances, quorumWords...)
	quorum := func(what string, v *yaml.Node) roles.Quorum { return roles.Quorum(number(what, v)) }
	if value.Kind != yaml.MappingNode {
		required.Start = quorum(what, value)
		required.Run = required.Start
		return
	}
	r.readMapping(what, value, "", "", into("start", &required.Start, quorum), into("run", &required.Run, quorum))
}
