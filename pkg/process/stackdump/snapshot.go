package stackdump

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// UnreachableNode is a node that has not reported the activity of its children.
type UnreachableNode struct {
	Node   int    `json:"node"`
	Host   string `json:"host,omitempty"`
	Reason string `json:"why"`
}

// RunSnapshot describes the current activity of a whole run.
type RunSnapshot struct {
	Run         string            `json:"run"`
	Nodes       int               `json:"nodes"` // number of nodes in the request
	Unreachable []UnreachableNode `json:"silent,omitempty"`
	// Groups are the children with the same activity; the most significant groups come first.
	Groups  []ActivityGroup `json:"groups"`
	Reports []ChildReport   `json:"seen"`
	// Problems describe nodes that could not be inspected completely.
	Problems []string `json:"problems,omitempty"`
}

// ActivityGroup consists of children of a run with the same activity.
type ActivityGroup struct {
	// Child is "rank", the instance of a role of which they are processes, or the common name of the
	// children.
	Child    string   `json:"child"`
	Ranks    []int    `json:"ranks,omitempty"` // ranks of the world or of the instance, sorted
	Nodes    []int    `json:"nodes"`           // their node indexes, sorted
	Hosts    []string `json:"hosts"`           // names of these nodes
	Count    int      `json:"count"`
	Activity string   `json:"doing"` // description of their common activity
	// distinct files and peers that are the subjects of their system calls
	Subjects []string `json:"of,omitempty"`
	Facts    []string `json:"facts,omitempty"` // further descriptions

	members []ChildReport
}

// rankKind is the common name of the ranks of a world.
const rankKind = "rank"

const driverKind = "driver"

// instanceNames matches the name of a process of an instance of a role, such as trainer.0.12 or, if
// the instance has only one, trainer.0.
var instanceNames = textutil.CompileLazily(`^([a-z][a-z0-9-]*\.[0-9]{1,9})(?:\.([0-9]{1,9}))?$`)

// splitName returns the common name of children like this one, and the number of the rank in the world
// or in its instance, or -1 if the child is not one of several.
func (s ChildReport) splitName() (kind string, rank int) {
	if digits, is := strings.CutPrefix(s.Child, rankKind+" "); is {
		if rank, err := strconv.Atoi(digits); err == nil {
			return rankKind, rank
		}
	}
	if parts := instanceNames().FindStringSubmatch(s.Child); parts != nil && parts[2] != "" {
		rank, _ := strconv.Atoi(parts[2]) // the expression has matched digits
		return parts[1], rank
	}
	return s.Child, -1
}

// BelongsTo reports whether the child is a process of an instance of a role.
func (s ChildReport) BelongsTo(instance string) bool {
	kind, _ := s.splitName()
	return kind == instance
}

// Rank returns the rank of a child that is a rank of the run's only world.
func (s ChildReport) Rank() (rank int, isRank bool) {
	kind, rank := s.splitName()
	return rank, kind == rankKind && rank >= 0
}

// NewRunSnapshot combines the results of all nodes.
func NewRunSnapshot(run string, nodes int, seen []ChildReport, silent []UnreachableNode) RunSnapshot {
	snapshot := RunSnapshot{
		Run: run, Nodes: nodes, Unreachable: slices.Clone(silent),
		Groups: []ActivityGroup{}, Reports: []ChildReport{},
	}
	for i, s := range snapshot.Unreachable {
		snapshot.Unreachable[i].Host = cmp.Or(s.Host, launcher.NodeLabel(s.Node, ""))
	}
	// Group the children by name and activity.
	groups := make(map[string]*ActivityGroup)
	for _, s := range seen {
		s.Host = cmp.Or(s.Host, launcher.NodeLabel(s.Node, ""))
		if s.Child == "" {
			snapshot.Problems = append(snapshot.Problems, s.Host+": "+s.Problem)
			continue
		}
		snapshot.Reports = append(snapshot.Reports, s)
		kind, _ := s.splitName()
		doing := s.describeActivity()
		key := kind + "\x00" + doing
		if groups[key] == nil {
			groups[key] = &ActivityGroup{Child: kind, Activity: doing}
		}
		groups[key].members = append(groups[key].members, s)
	}
	// Complete and sort the groups.
	for _, group := range groups {
		group.summarizeMembers()
		snapshot.Groups = append(snapshot.Groups, *group)
	}
	slices.SortFunc(snapshot.Groups, compareGroups)
	slices.SortFunc(snapshot.Reports, func(a, b ChildReport) int {
		return cmp.Or(a.Node-b.Node, strings.Compare(a.Child, b.Child))
	})
	slices.Sort(snapshot.Problems)
	return snapshot
}

func (g *ActivityGroup) summarizeMembers() {
	slices.SortFunc(g.members, func(a, b ChildReport) int {
		_, one := a.splitName()
		_, other := b.splitName()
		return cmp.Or(one-other, a.Node-b.Node)
	})
	// Collect ranks, nodes, files and peers.
	g.Count = len(g.members)
	for _, s := range g.members {
		if _, rank := s.splitName(); rank >= 0 {
			g.Ranks = append(g.Ranks, rank)
		}
		if s.Process != nil && s.Process.On != "" {
			g.Subjects = append(g.Subjects, s.Process.On)
		}
		g.Nodes = append(g.Nodes, s.Node)
	}
	slices.Sort(g.Nodes)
	g.Nodes = slices.Compact(g.Nodes)
	for _, node := range g.Nodes {
		at := slices.IndexFunc(g.members, func(s ChildReport) bool { return s.Node == node })
		g.Hosts = append(g.Hosts, g.members[at].Host)
	}
	g.Hosts = uniqueWords(g.Hosts)
	g.Subjects = uniqueWords(g.Subjects)
	g.Facts = g.describeFacts()
}

func uniqueWords(words []string) (kept []string) {
	for _, word := range words {
		if !slices.Contains(kept, word) {
			kept = append(kept, word)
		}
	}
	return kept
}

// compareGroups compares groups by significance. Ranks come before the driver, and the driver
// before others. Small groups come first: the ranks that differ from all others are probably those
// for which the others wait.
func compareGroups(a, b ActivityGroup) int {
	first := func(g ActivityGroup) int { return append(slices.Clone(g.Ranks), 0)[0] }
	return cmp.Or(kindOrder(a)-kindOrder(b), a.Count-b.Count, strings.Compare(a.Child, b.Child),
		first(a)-first(b), strings.Compare(a.Activity, b.Activity))
}

// hasPrograms reports whether the children are ranks of the world or processes of instances.
func (g ActivityGroup) hasPrograms() bool {
	return len(g.Ranks) > 0 || instanceNames().MatchString(g.Child)
}

// numberOfKinds is the number of different results of kindOrder.
const numberOfKinds = 3

// kindOrder returns the position of a group by the kind of its children.
func kindOrder(g ActivityGroup) int {
	switch {
	case g.hasPrograms():
		return 0
	case g.Child == driverKind:
		return 1
	default:
		return 2
	}
}

// describeActivity describes the activity of a child. It leaves out details that differ between
// children with the same activity, so that these form one group.
func (s ChildReport) describeActivity() string {
	switch {
	case s.Ended != "":
		return "has ended: " + s.Ended
	case s.Process == nil:
		return s.Problem
	}
	var words []string
	for _, wait := range s.Waits {
		words = append(words, fmt.Sprintf("in %s %s", wait.Kind, wait.Name))
	}
	// Prefer the stack to the state of the process.
	function, line := s.Stack.userLocation()
	state := s.Process.describeState()
	place := state
	switch {
	case function != "":
		place = "in " + function
	case line != "" && s.Process.Call != "" && !s.Process.isBusy():
		place = "in " + s.Process.Call
	}
	if line != "" {
		place += " at " + line
	}
	words = append(words, place)
	if s.Process.IsHeld() && !strings.Contains(strings.Join(words, ""), state) {
		words = append([]string{state}, words...)
	}
	return strings.Join(words, ", ")
}

// IsHeld reports whether the process cannot continue by itself.
func (p Process) IsHeld() bool {
	return p.State == stateStopped || p.State == stateTraced || p.State == stateStuck
}

// isBusy reports whether the process is working. A running process on an overloaded node gets less
// of a processor than it needs, so a tenth of the usual minimum is sufficient for it.
func (p Process) isBusy() bool {
	return p.Cores >= minBusyCores || p.State == stateRunning && p.Cores >= minBusyCores/10
}

func (p Process) describeState() string {
	in := ""
	if p.Call != "" {
		in = " in " + p.Call
	}
	switch {
	case p.State == "":
		return "has just ended"
	case p.State == stateStopped:
		return "stopped by a signal"
	case p.State == stateTraced:
		return "stopped by a debugger"
	case p.State == stateZombie:
		return "ended, but some of its threads still run"
	case p.State == stateStuck:
		return "stuck in the kernel" + cmp.Or(in, " in "+cmp.Or(p.Wchan, "an unknown call"))
	case p.isBusy():
		return "busy"
	case p.State == stateRunning:
		return "running"
	case p.Call == "" && p.Wchan != "":
		return "asleep in the kernel's " + p.Wchan
	default:
		return "asleep" + in
	}
}
