package why

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
)

// Child is one that a daemon has started.
type Child struct {
	Name   string `json:"name"` // driver, rank 12, worker
	PID    int    `json:"pid"`
	Ended  string `json:"ended,omitempty"` // how it ended, where it has
	Output Output `json:"output"`
}

// Variable is the environment variable by which a daemon tells its children to the program that looks at them.
const Variable = "BRINGUPD_CHILDREN"

// Describe returns the variable with its value.
func Describe(children []Child) string {
	text, _ := json.Marshal(children) // of nothing that could not be written
	return Variable + "=" + string(text)
}

// Described reads the value of the variable.
func Described(value string) (children []Child, err error) {
	if err = json.Unmarshal([]byte(value), &children); err != nil {
		err = fmt.Errorf("cannot read %s, by which a daemon tells its children: %v", Variable, err)
	}
	return children, err
}

// Wait is what a program waits for at the job's meeting.
type Wait struct {
	PID     int     `json:"-"`    // the process that asked for it, or
	Child   string  `json:"-"`    // the child whose it is
	Kind    string  `json:"kind"` // fence or get
	Name    string  `json:"name"`
	SinceS  float64 `json:"since_s"`           // for how many seconds
	Missing []int   `json:"missing,omitempty"` // ranks that are waited for
}

// Output is what a child has printed.
type Output struct {
	Bytes int64   `json:"bytes"`
	AgoS  float64 `json:"ago_s"` // seconds since the last of it, where there is any
}

// Seen is what one child of a node does.
type Seen struct {
	Child     string   `json:"child"`          // its name; empty: what is told of the node
	Node      int      `json:"node"`           // its daemon's number
	Host      string   `json:"host,omitempty"` // its name
	PID       int      `json:"pid,omitempty"`
	Ended     string   `json:"ended,omitempty"`
	Process   *Process `json:"process,omitempty"`   // the one of its family that tells most
	Processes int      `json:"processes,omitempty"` // in its family
	Cores     float64  `json:"cores"`               // that all of them have used
	Output    Output   `json:"output"`
	Waits     []Wait   `json:"waits,omitempty"`
	Stack     *Stack   `json:"stack,omitempty"` // of Process's thread
	Problem   string   `json:"problem,omitempty"`
}

// Node is one node that is looked at.
type Node struct {
	Children []Child
	// Waits returns what the node's programs wait for at the job's meeting; nil: there is none.
	Waits  func(ctx context.Context) ([]Wait, error)
	Stacks bool
	// For is how long processor time is measured.
	For time.Duration
}

const (
	// lookTime bounds the look at one child's processes, and the question for waits.
	lookTime = 3 * time.Second
	// mostMembers is how many processes of a family are looked at: the nearest to the child.
	mostMembers = 64
	// looksAtOnce is how many children are looked at side by side.
	looksAtOnce = 16
)

// Look looks at the node's children and tells each, as soon as it is seen, to one caller at a time. What can't be seen
// is told as a problem.
func (n Node) Look(ctx context.Context, tell func(Seen)) {
	asked := time.Now()
	waits, err := n.waits(ctx)
	if err != nil {
		tell(Seen{Problem: err.Error()})
	}
	onlooker := process.NewOnlooker()
	first, began := families(onlooker, n.Children), time.Now()
	pause.For(ctx, n.For)
	second, took := families(onlooker, n.Children), time.Since(began)

	var mu sync.Mutex
	var looks errgroup.Group
	looks.SetLimit(looksAtOnce)
	gatherer, looker := newGatherer(ctx), newLooker("/proc")
	for _, child := range n.Children {
		looks.Go(func() error {
			looking, cancel := context.WithTimeout(ctx, lookTime)
			defer cancel()
			all, family := cores(first[child.PID], second[child.PID], took)
			seen := looker.see(looking, child, family)
			seen.Cores = all
			seen.Output.AgoS += time.Since(asked).Seconds()
			seen.Waits = waitsOf(waits, child.Name, family)
			if n.Stacks && seen.Process != nil {
				seen.Stack = gatherer.stack(*seen.Process)
			}
			mu.Lock()
			defer mu.Unlock()
			tell(seen)
			return nil
		})
	}
	_ = looks.Wait()
	gatherer.close()
}

// families are those of the children that live. Whom /proc hides is in none.
func families(onlooker *process.Onlooker, children []Child) map[int][]process.Member {
	var living []int
	for _, child := range children {
		if child.Ended == "" {
			living = append(living, child.PID)
		}
	}
	families, _ := onlooker.Families(living, true)
	return families
}

// member is one process of a family, and how many cores it has used.
type member struct {
	process.Member
	cores float64
}

// cores tells how many cores the processes of a family have used between two looks, all of them and each that is still
// there.
func cores(first, second []process.Member, took time.Duration) (all float64, family []member) {
	type identity struct {
		pid   int
		start uint64
	}
	used := make(map[identity]time.Duration)
	for _, m := range first {
		used[identity{m.PID, m.Start}] = m.Used
		all -= (m.Used + m.Waited).Seconds()
	}
	seconds := max(took, time.Millisecond).Seconds()
	for _, m := range second {
		all += (m.Used + m.Waited).Seconds()
		family = append(family, member{m, max(0, m.Used-used[identity{m.PID, m.Start}]).Seconds() / seconds})
	}
	return max(0, all/seconds), family
}

// see looks at a child's family.
func (root looker) see(ctx context.Context, child Child, family []member) Seen {
	seen := Seen{Child: child.Name, PID: child.PID, Ended: child.Ended, Processes: len(family), Output: child.Output}
	if child.Ended != "" {
		return seen
	}
	if len(family) == 0 {
		seen.Problem = fmt.Sprintf("cannot see process %d: it has just ended, or is hidden", child.PID)
		return seen
	}
	var candidates []candidate
	for depth, m := range nearest(family, child.PID) {
		if depth >= mostMembers {
			break
		}
		p := root.look(ctx, m.PID)
		p.Cores = m.cores
		candidates = append(candidates, candidate{p, m.Parent})
	}
	seen.Process = telling(candidates)
	return seen
}

// nearest puts a family in the order of its descent: the child first, then its children, those last whose parents are gone.
func nearest(family []member, child int) (order []member) {
	children := make(map[int][]member)
	known := make(map[int]bool)
	for _, m := range family {
		known[m.PID] = true
	}
	var roots []member
	for _, m := range family {
		switch {
		case m.PID == child:
			roots = slices.Insert(roots, 0, m)
		case known[m.Parent] && m.Parent != m.PID:
			children[m.Parent] = append(children[m.Parent], m)
		default:
			roots = append(roots, m)
		}
	}
	for next := roots; len(next) > 0; {
		order = append(order, next...)
		var below []member
		for _, m := range next {
			slices.SortFunc(children[m.PID], func(a, b member) int { return cmp.Compare(a.Start, b.Start) })
			below = append(below, children[m.PID]...)
		}
		next = below
	}
	return order
}

// candidate is a process that may be the one to be shown of a family, the nearest to the child first.
type candidate struct {
	Process
	parent int
}

// busy is from how many cores on a process is at work, whatever it waited for when it was looked at.
const busy = 0.5

// telling returns the process of a family that tells most: one that is stuck, or stopped; else the busiest that is at
// work; else the nearest to the child that does not only wait for its own children.
func telling(family []candidate) *Process {
	var best *candidate
	var rank int
	for i := range family {
		c := &family[i]
		if r := weight(c, family); best == nil || r > rank || r == rank && r == atWork && c.Cores > best.Cores {
			best, rank = c, r
		}
	}
	if best == nil {
		return nil
	}
	return &best.Process
}

// The weights of processes, by what they tell.
const (
	waitsForChildren = iota + 1
	waiting
	atWork
	held
)

func weight(c *candidate, family []candidate) int {
	parent := slices.ContainsFunc(family, func(other candidate) bool { return other.parent == c.PID })
	switch {
	case c.State == "" || c.State == zombie:
		return 0
	case c.State == stopped || c.State == traced:
		return held
	case c.isBusy():
		return atWork
	// A parent that has called vfork waits for its child in D state.
	case parent && (c.Call == wait4 || c.Call == waitid || c.Call == "sigsuspend" || c.State == stuck):
		return waitsForChildren
	case c.State == stuck && c.StillS >= stuckTime.Seconds():
		return held
	}
	return waiting
}

// waits asks what the node's programs wait for.
func (n Node) waits(ctx context.Context) ([]Wait, error) {
	if n.Waits == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return n.Waits(ctx)
}

// waitsOf returns the waits that processes of a child's family have asked for.
func waitsOf(waits []Wait, child string, family []member) (own []Wait) {
	for _, wait := range waits {
		if wait.Child == child || slices.ContainsFunc(family, func(m member) bool { return m.PID == wait.PID }) {
			own = append(own, wait)
		}
	}
	return own
}
