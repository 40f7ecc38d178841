package why

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Silent is a node that has not told what its children do.
type Silent struct {
	Node int    `json:"node"`
	Host string `json:"host,omitempty"`
	Why  string `json:"why"`
}

// Picture is what a whole run is doing.
type Picture struct {
	Run    string   `json:"run"`
	Nodes  int      `json:"nodes"` // that were asked
	Silent []Silent `json:"silent,omitempty"`
	// Groups are those who do the same, those first that tell most.
	Groups []Group `json:"groups"`
	Seen   []Seen  `json:"seen"`
	// Problems are what could not be seen of nodes.
	Problems []string `json:"problems,omitempty"`
}

// Group is some of a run that do the same.
type Group struct {
	Child string   `json:"child"`           // rank, or the name that they share
	Ranks []int    `json:"ranks,omitempty"` // of the world, sorted
	Nodes []int    `json:"nodes"`           // where they are, sorted
	Hosts []string `json:"hosts"`           // the same by name
	Count int      `json:"count"`
	Doing string   `json:"doing"`           // the sentence that they share
	Of    []string `json:"of,omitempty"`    // the files and peers that their calls are about, each once
	Facts []string `json:"facts,omitempty"` // more about them, in words

	members []Seen
}

// aRank is the name that the ranks of a world share.
const aRank = "rank"

// driver is the name of the one child that is the job.
const driver = "driver"

// kind parts a child's name into what it shares with others and its rank of the world; -1 where it is none.
func (s Seen) kind() (kind string, rank int) {
	if digits, is := strings.CutPrefix(s.Child, aRank+" "); is {
		if rank, err := strconv.Atoi(digits); err == nil {
			return aRank, rank
		}
	}
	return s.Child, -1
}

// NewPicture makes one picture of what all nodes have seen.
func NewPicture(run string, nodes int, seen []Seen, silent []Silent) Picture {
	picture := Picture{Run: run, Nodes: nodes, Silent: slices.Clone(silent), Groups: []Group{}, Seen: []Seen{}}
	for i, s := range picture.Silent {
		picture.Silent[i].Host = nameOf(s.Node, s.Host)
	}
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
	for _, group := range groups {
		group.settle()
		picture.Groups = append(picture.Groups, *group)
	}
	slices.SortFunc(picture.Groups, byTelling)
	slices.SortFunc(picture.Seen, func(a, b Seen) int { return cmp.Or(a.Node-b.Node, strings.Compare(a.Child, b.Child)) })
	slices.Sort(picture.Problems)
	return picture
}

// nameOf is a node's name. Where a host has several, requests call them ranks, which here are others.
func nameOf(node int, host string) string {
	if host == "" || strings.HasPrefix(host, aRank+" ") {
		return fmt.Sprintf("node %d", node)
	}
	return host
}

// settle makes of a group's members what is said of all.
func (g *Group) settle() {
	slices.SortFunc(g.members, func(a, b Seen) int {
		_, one := a.kind()
		_, other := b.kind()
		return cmp.Or(one-other, a.Node-b.Node)
	})
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

// once leaves one of each.
func once(words []string) (kept []string) {
	for _, word := range words {
		if !slices.Contains(kept, word) {
			kept = append(kept, word)
		}
	}
	return kept
}

// byTelling puts ranks before the driver, that before all else, and small groups before large ones: who does something
// else than all the others is whom they wait for.
func byTelling(a, b Group) int {
	first := func(g Group) int { return append(slices.Clone(g.Ranks), 0)[0] }
	return cmp.Or(place(a)-place(b), a.Count-b.Count, strings.Compare(a.Child, b.Child), first(a)-first(b), strings.Compare(a.Doing, b.Doing))
}

// place is where groups of a kind stand.
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

// doing says what a child does, without what is different in each of many who do the same.
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

// isHeld tells whether the process can't go on by itself, whatever it is doing.
func (p Process) isHeld() bool {
	return p.State == stopped || p.State == traced || p.State == stuck
}

// isBusy tells whether the process is at work. On a node with too many such it gets less of a processor than it would take.
func (p Process) isBusy() bool {
	return p.Cores >= busy || p.State == running && p.Cores >= busy/10
}

// doing says what the process does.
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
