package rolefile

import (
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles"
)

// complete sets the defaults that depend on other keys of the role, and refuses keys that
// contradict each other.
func (r *roleReader) complete() {
	if r.def.Name == "" && r.given["name"] == nil {
		r.refuseLine(r.def.Line, "%s has no name: %s", r.owner, nameRule)
	}
	r.completePlacement()
	r.checkSetup()
	r.checkNodes()
	r.checkInstances()
	r.checkGPUs()
	r.checkProgram()
}

func (r *roleReader) completePlacement() {
	if len(r.place.With) > 0 && r.given["nodes"] == nil {
		r.place.Nodes = roles.NodesAll
	}
	r.place.HasRanks = r.given["ranks-per-node"] != nil || r.place.Ranks > 0
	if r.place.HasRanks && r.given["ranks-per-node"] == nil {
		r.place.RanksPerNode = roles.PerSlot
	}
	if r.place.HasRanks && r.given["nodes-per-instance"] == nil {
		r.place.NodesPerInstance = roles.NodesAll
	}
	if r.given["gpus"] != nil {
		return
	}
	perGPU := r.place.InstancesPerNode == roles.PerGPU || r.place.RanksPerNode == roles.PerGPU ||
		r.place.RanksPerNode == roles.PerSlot
	if r.place.ClaimsNodes() || perGPU {
		r.place.GPUs = roles.GPUsDivided
	}
}

// setupKeys are the keys of a role that prepares the nodes.
var setupKeys = []string{"name", "nodes", "gpus", "command", "env", "ports", "oneshot", "timeout"}

// checkSetup sets the defaults of a role that prepares each node before its checks, and refuses what
// such a role cannot have: it is the setup command of the node.
func (r *roleReader) checkSetup() {
	if !r.def.PreparesNode {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.given)) {
		if !slices.Contains(setupKeys, name) {
			r.refuseKey(name, "%s and oneshot: node are both given: a role that prepares the nodes has only "+
				"the keys %s", name, strings.Join(setupKeys, ", "))
		}
	}
	switch {
	case r.given["nodes"] != nil && r.place.Nodes != roles.NodesAll:
		r.refuseKey("nodes", "a role that prepares the nodes runs on all of them: give nodes: all")
	case r.given["gpus"] != nil && r.place.GPUs != roles.GPUsAll:
		r.refuseKey("gpus", "a role that prepares the nodes sees all GPUs: give gpus: all, or omit it")
	case r.given["ports"] != nil && len(r.def.Program.Ports) > 0:
		r.refuseKey("ports", "a role that prepares the nodes has no ports: omit ports")
	}
	r.place.GPUs, r.def.Program.Ports = roles.GPUsAll, nil
}

// refuseKey records a mistake at a key of the role, or at the role if it does not have the key.
func (r *roleReader) refuseKey(name, format string, args ...any) {
	line := r.def.Line
	if node := r.given[name]; node != nil {
		line = node.Line
	}
	r.refuseLine(line, r.owner+": "+format, args...)
}

// checkNodes refuses contradictions between the keys that select nodes.
func (r *roleReader) checkNodes() {
	shares := r.given["with"] != nil
	switch {
	case shares && r.given["group"] != nil:
		r.refuseKey("group", "with and group are both given: with places it on the nodes of another "+
			"role, in whichever group these are; omit group")
	case shares && r.place.Nodes < 0 && r.place.Nodes != roles.NodesAll:
		r.refuseKey("nodes", "with and nodes: rest, head or others are both given: with takes nodes: all or "+
			"a number, the first of the other role's nodes")
	case shares && len(r.place.With) == 0:
		r.refuseKey("with", "with is empty: give a role or a list of roles, or omit it")
	case !shares && r.given["nodes"] == nil:
		r.refuseKey("nodes", "nodes is missing: give a number, rest, all, head or others, or place it "+
			"with: another role")
	case r.place.Nodes == roles.NodesHead && r.place.Group != 0:
		r.refuseKey("group", "nodes: head and group: %d are both given: the head is the first node "+
			"of the run; omit group", r.place.Group)
	}
	if r.place.Segment > 1 && !r.place.ClaimsNodes() {
		r.refuseKey("segment", "segment is for roles that claim nodes: give nodes: N or nodes: rest, or omit segment")
	}
}

// checkInstances refuses several instances on each of the nodes of one that spans more than one.
func (r *roleReader) checkInstances() {
	spansNodes := r.place.NodesPerInstance > 1 || r.place.NodesPerInstance == roles.NodesAll
	if !spansNodes || r.place.InstancesPerNode == 1 {
		return
	}
	reason := ""
	if r.given["nodes-per-instance"] == nil {
		reason = ", which is the default with ranks-per-node: give nodes-per-instance: 1 for an " +
			"instance on each node"
	}
	r.refuseKey("per-node", "per-node is more than 1, and an instance spans more than one node%s", reason)
}

// checkGPUs refuses more than one GPU for each of the processes of which there is one per GPU.
func (r *roleReader) checkGPUs() {
	for _, key := range []struct {
		name  string
		count int
	}{{"per-node", r.place.InstancesPerNode}, {"ranks-per-node", r.place.RanksPerNode}} {
		if key.count == roles.PerGPU && r.place.GPUs > 1 {
			r.refuseKey("gpus", "gpus: %d for each process, and %s: gpu is a process for each GPU",
				r.place.GPUs, key.name)
		}
	}
}

// checkProgram refuses a role without a program, and programs that contradict the role's kind.
func (r *roleReader) checkProgram() {
	framework, command := r.def.Program.Framework, r.def.Program.Command
	hasFollower := r.def.Program.FollowerCommand != ""
	isAlone := r.place.NodesPerInstance == 1 && r.place.RanksPerNode == 1
	ends := r.def.Primary || r.def.Oneshot
	switch {
	case command == "" && framework == "" && r.given["command"] == nil && r.given["framework"] == nil:
		r.refuseKey("command", "command is missing: give the shell text that each process runs, or framework: %s",
			joinOr(frameworks))
	case command == "" && ends && r.given["command"] == nil:
		r.refuseKey("framework", "a cluster without a command never ends by itself: give a command, "+
			"or omit primary and oneshot")
	case hasFollower && framework != "":
		r.refuseKey("follower-command", "follower-command and framework are both given: the "+
			"framework runs on the other nodes; omit follower-command")
	case hasFollower && command == "" && r.given["command"] == nil:
		r.refuseKey("follower-command", "follower-command is given without command: give the command "+
			"of the process of rank 0")
	case hasFollower && isAlone:
		r.refuseKey("follower-command", "follower-command is for processes of rank 1 and above, and "+
			"an instance has one process: give nodes-per-instance or ranks-per-node, or omit it")
	case framework != "" && r.place.HasRanks:
		r.refuseKey("ranks-per-node", "ranks-per-node and framework are both given: a cluster has no "+
			"ranks; omit one of them")
	case framework != "" && len(r.def.Program.Ports) == 0:
		r.refuseKey("ports", "ports is empty, and the head of a cluster needs a port: omit the key for "+
			"%s: auto", DefaultPort)
	case r.given["on-rank-failure"] != nil && !r.place.HasRanks:
		r.refuseKey("on-rank-failure", "on-rank-failure is for roles with ranks: "+
			"give ranks-per-node, or omit it")
	}
	if r.def.Oneshot && r.def.Primary {
		r.refuseKey("oneshot", "oneshot and primary are both given: the run ends with its primaries, "+
			"and goes on after a oneshot role; omit one of them")
	}
	switch {
	case !r.def.Oneshot && r.given["timeout"] != nil:
		r.refuseKey("timeout", "timeout is given without oneshot: it is how long a oneshot role may "+
			"run; for the time until a role is ready, give ready: {probe: …, timeout: …}")
	case r.def.Oneshot && r.given["timeout"] == nil:
		r.def.Timeout = roles.DefaultTimeout
	}
	switch mayHang := ends || r.place.HasRanks; {
	case r.given["hang-timeout"] == nil:
	case framework != "":
		r.refuseKey("hang-timeout", "hang-timeout and framework are both given: the processes of a "+
			"cluster are idle while it has no work; omit hang-timeout")
	case !mayHang:
		r.refuseKey("hang-timeout", "hang-timeout is for roles that are primary or oneshot or have "+
			"ranks: a server is idle while it has no requests; give an alive probe")
	}
	for _, probe := range []string{"ready", "alive"} {
		if r.def.Oneshot && r.given[probe] != nil {
			r.refuseKey(probe, "%s and oneshot are both given: a oneshot role is done when it has "+
				"ended with 0; omit %s", probe, probe)
		}
	}
}

// checkRestartWindow refuses a window in which the restarts cannot be used up. A window that is not
// given becomes twice as long as all back-offs together if the default is too short.
func (r *roleReader) checkRestartWindow(what string, value *yaml.Node, isGiven bool) {
	policy := &r.def.Restarts
	sum := sumBackoffs(*policy)
	switch {
	case policy.Window >= sum:
	case !isGiven && sum <= maxDuration/2:
		policy.Window = 2 * sum
	default:
		r.refuse(value, "%s: window is %s, shorter than the pauses before %d restarts together, %s: "+
			"the restarts could never be used up; give a longer window, fewer restarts or shorter "+
			"pauses",
			what, textutil.FlagDuration(policy.Window), policy.Max, textutil.FlagDuration(sum.Round(time.Second)))
	}
}

// sumBackoffs returns the sum of the pauses before all restarts of a program that always ends at once,
// at most [maxDuration].
func sumBackoffs(policy roles.RestartPolicy) (sum time.Duration) {
	for row := range policy.Max {
		sum = min(sum+policy.Pause(row+2), maxDuration)
	}
	return sum
}

// checkTogether sets the defaults that depend on other roles, and refuses roles that contradict
// each other.
func (l *errorList) checkTogether(readers []*roleReader) {
	byName := make(map[string]*roleReader)
	var names []string
	isTwice := false
	for _, r := range readers {
		if first := byName[r.def.Name]; first != nil && r.def.Name != "" {
			r.refuseKey("name", "the name %s is already that of the role in line %d", r.def.Name, first.def.Line)
			isTwice = true
			continue
		}
		byName[r.def.Name] = r
		names = append(names, r.def.Name)
	}
	defs := definitionsOf(readers)
	for _, r := range readers {
		r.completeAfter(defs)
	}
	defs = definitionsOf(readers)
	for _, r := range readers {
		r.checkNames("after", r.def.After, byName, names)
		r.checkNames("with", r.place.With, byName, names)
		r.checkShared(byName)
		r.checkClusters(defs)
		r.checkReferences(defs)
	}
	l.checkSetups(readers)
	l.checkRest(readers)
	if isTwice { // a circle may be a consequence of that
		return
	}
	l.checkCycle("with", readers, func(d roles.Definition) []string { return d.Placement.With })
	l.checkCycle("after", readers, func(d roles.Definition) []string { return d.After })
}

// completeAfter sets the default of after: a primary starts after all roles that are not primary.
func (r *roleReader) completeAfter(all []roles.Definition) {
	if !r.def.Primary || r.given["after"] != nil {
		return
	}
	for _, other := range all {
		if !other.Primary && other.Name != "" {
			r.def.After = append(r.def.After, other.Name)
		}
	}
}

// checkNames refuses names of roles that do not exist.
func (r *roleReader) checkNames(key string, used []string, byName map[string]*roleReader, names []string) {
	for _, name := range used {
		if byName[name] == nil {
			r.refuseKey(key, "%s: there is no role %s: the roles are %s%s",
				key, name, textutil.JoinLimited(names, 20, ", "), suggestNearest(name, names))
		}
	}
}

// checkShared refuses a role that is with one that prepares the nodes, or that shares the GPUs of one
// that itself shares those of another.
func (r *roleReader) checkShared(byName map[string]*roleReader) {
	for _, name := range r.place.With {
		other := byName[name]
		if other != nil && other.def.PreparesNode {
			r.refuseKey("with", "%s prepares all nodes, so it has none to share: give nodes: all", other.owner)
		}
		if r.place.GPUs == roles.GPUsShared && other != nil && other.place.GPUs == roles.GPUsShared {
			r.refuseKey("gpus", "gpus: shared, and %s, with which it is, has gpus: shared, too: "+
				"place it with the role whose GPUs they are", name)
		}
	}
}

// checkSetups refuses a second role that prepares the nodes.
func (l *errorList) checkSetups(readers []*roleReader) {
	var first *roleReader
	for _, r := range readers {
		switch {
		case !r.def.PreparesNode:
		case first == nil:
			first = r
		default:
			r.refuseKey("oneshot", "%s already prepares the nodes: give one role with oneshot: node", first.owner)
		}
	}
}

// checkRest refuses a second role that claims the rest of a group.
func (l *errorList) checkRest(readers []*roleReader) {
	first := make(map[int]*roleReader)
	for _, r := range readers {
		if r.place.Nodes != roles.NodesRest || len(r.place.With) > 0 {
			continue
		}
		if earlier := first[r.place.Group]; earlier != nil {
			r.refuseKey("nodes", "nodes: rest is already that of %s in group %d: give a number",
				earlier.owner, r.place.Group)
			continue
		}
		first[r.place.Group] = r
	}
}

// checkCycle refuses roles that refer to each other in a circle.
func (l *errorList) checkCycle(key string, readers []*roleReader, next func(roles.Definition) []string) {
	cycle := roles.FindCycle(definitionsOf(readers), next)
	if len(cycle) == 0 {
		return
	}
	at := slices.IndexFunc(readers, func(r *roleReader) bool { return r.def.Name == cycle[0] })
	hint := ""
	for _, r := range readers {
		if key == "after" && slices.Contains(cycle, r.def.Name) && r.given[key] == nil {
			hint = "; a primary without after starts after all roles that are not primary: give it after"
		}
	}
	readers[at].refuseKey(key, "%s is a circle: %s%s", key, strings.Join(append(cycle, cycle[0]), " → "), hint)
}

// clusterVariables are the variables that lead a process to a cluster of a framework.
var clusterVariables = map[string]string{"ray": "RAY_ADDRESS", "dask": "DASK_SCHEDULER_ADDRESS"}

// checkClusters refuses a role after or with two clusters of a framework, unless it says which of
// them it uses.
func (r *roleReader) checkClusters(defs []roles.Definition) {
	for _, framework := range frameworks {
		variable := clusterVariables[framework]
		clusters := roles.ClusterRoles(defs, r.def, framework)
		if _, isSet := r.def.Program.Env[variable]; len(clusters) > 1 && !isSet {
			r.refuseKey("after", "%s could be that of %s: set it with env, or name one of them in after",
				variable, strings.Join(clusters, " or "))
		}
	}
}
