package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Comparison sets a run beside another one.
type Comparison struct {
	Run    string        `json:"run"` // the other one
	Path   string        `json:"path"`
	Size   int           `json:"nodes"`
	Phases []PhaseChange `json:"phases"`
	Nodes  []NodeChange  `json:"node_phases,omitempty"` // the largest changes, worst first
	Notes  []string      `json:"notes,omitempty"`
}

// PhaseChange is a phase in both runs; the other run's times come first. Times
// are the median's and the slowest node's.
type PhaseChange struct {
	Phase    string           `json:"phase"`
	WasNodes int              `json:"was_nodes"`
	IsNodes  int              `json:"is_nodes"`
	Was      [2]time.Duration `json:"was_p50_max_ns"`
	Is       [2]time.Duration `json:"is_p50_max_ns"`
	Tone     Tone             `json:"tone"`
	Says     string           `json:"says"`
}

// NodeChange is a phase of a node that is in both runs.
type NodeChange struct {
	Rank  int           `json:"rank"`
	Host  string        `json:"host"`
	Phase string        `json:"phase"`
	Was   time.Duration `json:"was_ns"`
	Is    time.Duration `json:"is_ns"`
}

// By is how much slower it got.
func (c NodeChange) By() time.Duration { return c.Is - c.Was }

// What changes by less, or by less than a fifth, has not changed.
const (
	changeFloor = 50 * time.Millisecond
	mostChanges = 12
)

// changed tells whether a time is another one, and not the same with noise.
func changed(was, is time.Duration) bool {
	by := (is - was).Abs()
	return by >= changeFloor && by*5 >= was
}

// Compare sets v beside another run, which came before.
func (v *View) Compare(other *View) {
	c := &Comparison{Run: other.Run, Path: other.Path, Size: other.Size, Nodes: v.nodeChanges(other)}
	var names []string
	for _, s := range slices.Concat(v.Phases, other.Phases) {
		if !slices.Contains(names, s.Phase) {
			names = append(names, s.Phase)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(phaseRank(a), phaseRank(b)) })
	for _, name := range append(names, toGate) {
		c.Phases = append(c.Phases, changeOf(other.phase(name), v.phase(name), name))
	}
	if v.Size != other.Size {
		c.Notes = append(c.Notes, fmt.Sprintf("%s here, %d there", plural(v.Size, "node"), other.Size))
	}
	v.Compared = c
}

// toGate is set beside its like as a phase is.
const toGate = "start to gate"

func (v *View) phase(name string) PhaseStat {
	if name == toGate {
		return PhaseStat{P50: v.Gate, Max: v.Gate, Nodes: min(1, int(v.Gate))}
	}
	at := slices.IndexFunc(v.Phases, func(s PhaseStat) bool { return s.Phase == name })
	if at < 0 {
		return PhaseStat{}
	}
	return v.Phases[at]
}

// changeOf says how a phase has changed: by its slowest node, whom all wait for,
// where the median has not.
func changeOf(was, is PhaseStat, phase string) PhaseChange {
	p := PhaseChange{
		Phase: phase, WasNodes: was.Nodes, IsNodes: is.Nodes, Tone: Idle,
		Was: [2]time.Duration{was.P50, was.Max}, Is: [2]time.Duration{is.P50, is.Max},
	}
	switch {
	case was.Nodes == 0 && is.Nodes == 0:
		p.Says = "never"
	case was.Nodes == 0:
		p.Says = "only here"
	case is.Nodes == 0:
		p.Says = "only there"
	case changed(was.P50, is.P50):
		p.Tone, p.Says = judge(was.P50, is.P50, "")
	case changed(was.Max, is.Max):
		p.Tone, p.Says = judge(was.Max, is.Max, " on the slowest node")
	default:
		p.Tone, p.Says = Good, "the same"
	}
	return p
}

// judge says in words by how much a time has changed.
func judge(was, is time.Duration, what string) (Tone, string) {
	switch {
	case is <= was:
		return Good, prose.Brief(was-is) + " faster" + what
	case was > 0:
		return Mind, fmt.Sprintf("%s slower, %.1f times%s", prose.Brief(is-was), float64(is)/float64(was), what)
	default:
		return Mind, prose.Brief(is) + " slower" + what
	}
}

// nodeChanges are the phases of nodes that got slower. Nodes are the same by
// their hosts where these tell nodes apart, and by their ranks otherwise.
func (v *View) nodeChanges(other *View) (changes []NodeChange) {
	byHost := distinct(v.Nodes) && distinct(other.Nodes)
	key := func(n *Node) string {
		if byHost {
			return n.Host
		}
		return fmt.Sprint(n.Rank)
	}
	was := make(map[string]*Node)
	for i := range other.Nodes {
		was[key(&other.Nodes[i])] = &other.Nodes[i]
	}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		then := was[key(n)]
		if then == nil {
			continue
		}
		for _, lane := range n.Lanes {
			at := slices.IndexFunc(then.Lanes, func(l Lane) bool { return l.Phase == lane.Phase && l.Sandbox == lane.Sandbox })
			if at >= 0 && straggles(lane.Phase) && lane.Took() > then.Lanes[at].Took() && changed(then.Lanes[at].Took(), lane.Took()) {
				changes = append(changes, NodeChange{n.Rank, n.Host, lane.Phase, then.Lanes[at].Took(), lane.Took()})
			}
		}
	}
	slices.SortStableFunc(changes, func(a, b NodeChange) int { return cmp.Compare(b.By(), a.By()) })
	return changes[:min(len(changes), mostChanges)]
}

func distinct(nodes []Node) bool {
	hosts := make(map[string]bool)
	for _, n := range nodes {
		hosts[n.Host] = true
	}
	return len(hosts) == len(nodes) && !hosts[""]
}
