package why

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Silent is a node that has not reported the activity of its children.
type Silent struct {
	Node int    `json:"node"`
	Host string `json:"host,omitempty"`
	Why  string `json:"why"`
}

// Picture describes the current activity of a whole run.
type Picture struct {
	Run    string   `json:"run"`
	Nodes  int      `json:"nodes"` // number of nodes in the request
	Silent []Silent `json:"silent,omitempty"`
	// Groups are the children with the same activity; the most significant groups come first.
	Groups []Group `json:"groups"`
	Seen   []Seen  `json:"seen"`
	// Problems describe nodes that could not be inspected completely.
	Problems []string `json:"problems,omitempty"`
}

// Group consists of children of a run with the same activity.
type Group struct {
	Child string   `json:"child"`           // "rank", or the common name of the children
	Ranks []int    `json:"ranks,omitempty"` // ranks of the world, sorted
	Nodes []int    `json:"nodes"`           // their node indexes, sorted
	Hosts []string `json:"hosts"`           // names of these nodes
	Count int      `json:"count"`
	Doing string   `json:"doing"`           // description of their common activity
	Of    []string `json:"of,omitempty"`    // distinct files and peers that are the subjects of their system calls
	Facts []string `json:"facts,omitempty"` // further descriptions

	members []Seen
}

// aRank is the common name of the ranks of a world.
const aRank = "rank"

// driver is the name of the driver's child.
const driver = "driver"

// kind returns the common name of children like this one, and the number of the rank, or -1 if the
// child is not a rank.
func (s Seen) kind() (kind string, rank int) {
	if digits, is := strings.CutPrefix(s.Child, aRank+" "); is {
		if rank, err := strconv.Atoi(digits); err == nil {
			return aRank, rank
		}
	}
	return s.Child, -1
}

// NewPicture combines the results of all nodes.
func NewPicture(run string, nodes int, seen []Seen, silent []Silent) Picture {
	picture := Picture{Run: run, Nodes: nodes, Silent: slices.Clone(silent), Groups: []Group{}, Seen: []Seen{}}
	for i, s := range picture.Silent {
		picture.Silent[i].Host = nameOf(s.Node, s.Host)
	}
	// Group the children by name and activity.
	groups := make(map[string]*Group)
	for _, s := range seen {
		s.Host = nameOf(s.Node, s.Host)
		if s.Child == "" {
			picture.Problems = append(picture.Problems, s.Host+": "+s.Problem)
			continue
		}
		picture.Seen = append(picture.Seen, s)
		kind, _ := s.kind()
		doing := s.doing()
		key := kind + "\x00" + doing
		if groups[key] == nil {
			groups[key] = &Group{Child: kind, Doing: doing}
		}
		groups[key].members = append(groups[key].members, s)
	}
	// Complete and sort the groups.
	for _, group := range groups {
		group.settle()
		picture.Groups = append(picture.Groups, *group)
	}
	slices.SortFunc(picture.Groups, byTelling)
	slices.SortFunc(picture.Seen, func(a, b Seen) int { return cmp.Or(a.Node-b.Node, strings.Compare(a.Child, b.Child)) })
	slices.Sort(picture.Problems)
	return picture
}

// nameOf returns the name of a node. If several nodes share a host, requests name them like ranks,
// which would be ambiguous here.
func nameOf(node int, host string) string {
	if host == "" || strings.HasPrefix(host, aRank+" ") {
		return fmt.Sprintf("node %d", node)
	}
	return host
}

// settle computes the fields of a group from its members.
func (g *Group) settle() {
	slices.SortFunc(g.members, func(a, b Seen) int {
		_, one := a.kind()
		_, other := b.kind()
		return cmp.Or(one-other, a.Node-b.Node)
	})
	// Collect ranks, nodes, files and peers.
	g.Count = len(g.members)
	for _, s := range g.members {
		if _, rank := s.kind(); rank >= 0 {
			g.Ranks = append(g.Ranks, rank)
		}
		if s.Process != nil && s.Process.On != "" {
			g.Of = append(g.Of, s.Process.On)
		}
		g.Nodes = append(g.Nodes, s.Node)
	}
	slices.Sort(g.Nodes)
	g.Nodes = slices.Compact(g.Nodes)
	for _, node := range g.Nodes {
		at := slices.IndexFunc(g.members, func(s Seen) bool { return s.Node == node })
		g.Hosts = append(g.Hosts, g.members[at].Host)
	}
	g.Hosts = once(g.Hosts)
	g.Of = once(g.Of)
	g.Facts = g.facts()
}

// once returns the distinct elements in their order.
func once(words []string) (kept []string) {
	for _, word := range words {
		if !slices.Contains(kept, word) {
			kept = append(kept, word)
		}
	}
	return kept
}

// byTelling compares groups by significance. Ranks come before the driver, and the driver before
// others. Small groups come first: the ranks that differ from all others are probably those for
// which the others wait.
func byTelling(a, b Group) int {
	first := func(g Group) int { return append(slices.Clone(g.Ranks), 0)[0] }
	return cmp.Or(place(a)-place(b), a.Count-b.Count, strings.Compare(a.Child, b.Child), first(a)-first(b), strings.Compare(a.Doing, b.Doing))
}

// place returns the position of a group by the kind of its children.
func place(g Group) int {
	switch g.Child {
	case aRank:
		return 0
	case driver:
		return 1
	default:
		return 2
	}
}

// doing describes the activity of a child. It leaves out details that differ between children with
// the same activity, so that these form one group.
func (s Seen) doing() string {
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
	place, state := s.Stack.Place(), s.Process.doing()
	switch at := place.String(); {
	case at == "" || s.Stack.By == kernelStack:
		words = append(words, state)
	case place.In != "":
		words = append(words, at)
	case s.Process.Call != "" && !s.Process.isBusy():
		words = append(words, "in "+s.Process.Call+" "+at)
	default:
		words = append(words, state+" "+at)
	}
	if s.Process.isHeld() && !strings.Contains(strings.Join(words, ""), state) {
		words = append([]string{state}, words...)
	}
	return strings.Join(words, ", ")
}

// isHeld reports whether the process cannot continue by itself.
func (p Process) isHeld() bool {
	return p.State == stopped || p.State == traced || p.State == stuck
}

// isBusy reports whether the process is working. A running process on an overloaded node gets less
// of a processor than it needs, so a tenth of the usual minimum is sufficient for it.
func (p Process) isBusy() bool {
	return p.Cores >= busy || p.State == running && p.Cores >= busy/10
}

// doing describes the activity of the process.
func (p Process) doing() string {
	in := ""
	if p.Call != "" {
		in = " in " + p.Call
	}
	switch {
	case p.State == "":
		return "has just ended"
	case p.State == stopped:
		return "stopped by a signal"
	case p.State == traced:
		return "stopped by a debugger"
	case p.State == zombie:
		return "ended, with threads that go on"
	case p.State == stuck:
		return "stuck in the kernel" + cmp.Or(in, " in "+cmp.Or(p.Wchan, "an unknown call"))
	case p.isBusy():
		return "busy"
	case p.State == running:
		return "running"
	case p.Call == "" && p.Wchan != "":
		return "asleep in the kernel's " + p.Wchan
	default:
		return "asleep" + in
	}
}
