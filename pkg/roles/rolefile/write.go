package rolefile

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles"
)

// Format returns the text of a file with these roles and spares, from which [Parse] and [ParseSpares]
// read the same. It has the keys whose values differ from the defaults, in the order of docs/roles.md.
func (f File) Format() (string, error) {
	top := &yaml.Node{Kind: yaml.MappingNode}
	spares := maps.Clone(map[int]int(f.Spares))
	maps.DeleteFunc(spares, func(_, count int) bool { return count == 0 })
	if count := spares[0]; len(spares) == 1 && count > 0 {
		put(top, SparesKey, count)
	} else {
		put(top, SparesKey, spares)
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range f.Roles {
		list.Content = append(list.Content, formatRole(f.Roles, f.Roles[i]))
	}
	if len(f.Roles) > 0 {
		put(top, RolesKey, list)
	}
	if hasBinary(top) {
		return "", errors.New("cannot write the roles: a command or a variable is not valid UTF-8")
	}
	var b strings.Builder
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := encoder.Encode(top)
	return b.String(), err
}

// hasBinary reports whether a node has a text that YAML cannot contain.
func hasBinary(node *yaml.Node) bool {
	return node.ShortTag() == "!!binary" || slices.ContainsFunc(node.Content, hasBinary)
}

func formatRole(all []roles.Definition, def roles.Definition) *yaml.Node {
	usual := usualOf(all, def)
	p, program := def.Placement, def.Program
	m := &yaml.Node{Kind: yaml.MappingNode}
	put(m, "name", def.Name)
	put(m, "nodes", number(p.Nodes, usual.Placement.Nodes, nodesWords...))
	put(m, "group", number(p.Group, 0))
	put(m, "with", p.With)
	put(m, "per-node", number(p.InstancesPerNode, 1, wordPerGPU))
	put(m, "nodes-per-instance", number(p.NodesPerInstance, usual.Placement.NodesPerInstance, wordAll))
	put(m, "ranks-per-node", number(p.RanksPerNode, usual.Placement.RanksPerNode, ranksWords...))
	put(m, "ranks", number(p.Ranks, 0))
	put(m, "on-rank-failure", map[bool]string{true: "continue"}[p.RanksGoOn])
	put(m, "gpus", number(p.GPUs, usual.Placement.GPUs, gpusWords...))
	put(m, "segment", number(p.Segment, 0))
	put(m, "command", program.Command)
	put(m, "follower-command", program.FollowerCommand)
	put(m, "shell", program.Shell)
	put(m, "framework", program.Framework)
	put(m, "env", formatEnv(program.Env))
	put(m, "step", program.Step)
	put(m, "ports", formatPorts(program.Ports, usual.Program.Ports))
	put(m, "endpoints", map[bool]string{true: "all"}[program.AllEndpoints])
	if !slices.Equal(def.After, usual.After) {
		put(m, "after", newNode(slices.Concat([]string{}, def.After)))
	}
	put(m, "oneshot", def.Oneshot && !def.PreparesNode)
	put(m, "oneshot", map[bool]string{true: "node"}[def.PreparesNode])
	put(m, "timeout", duration(def.Timeout, usual.Timeout))
	put(m, "hang-timeout", duration(def.HangTimeout, 0))
	put(m, "ready", formatProbe(def.Ready.Probe, "timeout", duration(def.Ready.Timeout, usual.Ready.Timeout),
		def.Ready.ProbeLimits, usual.Ready.ProbeLimits))
	put(m, "alive", formatProbe(def.Alive.Probe, "after", duration(def.Alive.After, usual.Alive.After),
		def.Alive.ProbeLimits, roles.DefaultLimits(def.Alive.After)))
	put(m, "restarts", formatRestarts(def.Restarts, usual.Restarts.Window))
	put(m, "require", formatRequired(def.Required))
	put(m, "primary", def.Primary)
	put(m, "grace", duration(def.Stop.Grace, usual.Stop.Grace))
	if def.Stop.Signal != usual.Stop.Signal {
		put(m, "stop-signal", def.Stop.Signal)
	}
	return m
}

// usualOf returns one of the roles with the defaults of the keys that a file can omit. The default of
// a key that is required has no valid value.
func usualOf(all []roles.Definition, def roles.Definition) roles.Definition {
	r := newReader(newErrorList(), "")
	*r.place = def.Placement
	r.place.NodesPerInstance, r.place.GPUs = 1, 0
	hasCount := r.place.HasRanks && r.place.RanksPerNode != roles.PerSlot
	if hasCount {
		r.given = map[string]*yaml.Node{"ranks-per-node": {}}
	}
	r.completePlacement()
	r.def.PreparesNode = def.PreparesNode
	r.checkSetup()
	if hasCount {
		r.place.RanksPerNode = 0
	}
	if len(r.place.With) == 0 {
		r.place.Nodes = 0
	}
	r.def.Primary = def.Primary
	r.completeAfter(all)
	if def.Oneshot {
		r.def.Timeout = roles.DefaultTimeout
	}
	r.def.Restarts = def.Restarts
	r.def.Restarts.Window = roles.DefaultRestartWindow
	r.checkRestartWindow("", &yaml.Node{}, false)
	return r.def
}

func formatEnv(env map[string]string) *yaml.Node {
	if len(env) == 0 {
		return nil
	}
	m := newMapping()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		m.Content = append(m.Content, newNode(name), newNode(env[name]))
	}
	return m
}

func formatPorts(ports, usual []roles.PortRequest) *yaml.Node {
	if slices.Equal(ports, usual) {
		return nil
	}
	m := newMapping()
	for _, port := range ports {
		value := number(port.Number, -1, namedNumber{"auto", 0})
		if port.Count > 1 {
			value = newMapping()
			put(value, "count", port.Count)
		}
		put(m, port.Name, value)
	}
	return m
}

// formatProbe returns a probe alone, or a mapping of it and of what is not the default.
func formatProbe(probe, limitKey string, limit *yaml.Node, limits, usual roles.ProbeLimits) any {
	m := newMapping()
	put(m, "probe", probe)
	put(m, limitKey, limit)
	put(m, "try", duration(limits.Try, usual.Try))
	put(m, "misses", number(limits.Misses, usual.Misses))
	if len(m.Content) == 0 || len(m.Content) == 2 && probe != "" {
		return probe
	}
	return m
}

func formatRestarts(policy roles.RestartPolicy, usual time.Duration) *yaml.Node {
	m := newMapping()
	put(m, "max", number(policy.Max, -1))
	put(m, "window", duration(policy.Window, usual))
	if policy.MinBackoff != roles.DefaultMinBackoff || policy.MaxBackoff != roles.DefaultMaxBackoff {
		put(m, "backoff", textutil.FlagDuration(policy.MinBackoff)+".."+textutil.FlagDuration(policy.MaxBackoff))
	}
	if len(m.Content) > 2 {
		return m
	}
	return number(policy.Max, 0)
}

func formatRequired(required roles.Requirement) *yaml.Node {
	start := number(int(required.Start), int(roles.QuorumAll), quorumWords...)
	if required.Start == required.Run {
		return start
	}
	m := newMapping()
	put(m, "start", start)
	put(m, "run", number(int(required.Run), int(roles.QuorumAll), quorumWords...))
	return m
}

// number returns a number, or the word for it, unless it is the usual one.
func number(n, usual int, words ...namedNumber) *yaml.Node {
	if n == usual {
		return nil
	}
	at := slices.IndexFunc(words, func(w namedNumber) bool { return w.number == n })
	if at < 0 {
		return newNode(n)
	}
	return newNode(words[at].word)
}

// duration returns a duration, unless it is the usual one.
func duration(d, usual time.Duration) *yaml.Node {
	if d == usual {
		return nil
	}
	return newNode(textutil.FlagDuration(d))
}

// put adds a key with a value to a mapping, unless the value is zero or has no elements.
func put(m *yaml.Node, key string, value any) {
	v := reflect.ValueOf(value)
	isList := v.Kind() == reflect.Map || v.Kind() == reflect.Slice
	if v.IsZero() || isList && v.Len() == 0 {
		return
	}
	node, isNode := value.(*yaml.Node)
	if !isNode {
		node = newNode(value)
	}
	m.Content = append(m.Content, newNode(key), node)
}

// newNode returns a value as YAML, lists and mappings on one line.
func newNode(value any) *yaml.Node {
	var node yaml.Node
	if text, isText := value.(string); isText {
		node.SetString(text)
		if strings.ContainsAny(text, "\t\r") || strings.TrimSpace(text) != text {
			node.Style = yaml.DoubleQuotedStyle
		}
		return &node
	}
	_ = node.Encode(value) // no error is possible for the types of values
	if node.Kind != yaml.ScalarNode {
		node.Style = yaml.FlowStyle
	}
	return &node
}

func newMapping() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle} }
