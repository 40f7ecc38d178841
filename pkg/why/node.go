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

// Child is a child process of a daemon.
type Child struct {
	Name   string `json:"name"` // such as driver, rank 12, worker
	PID    int    `json:"pid"`
	Ended  string `json:"ended,omitempty"` // description of its end; empty if it runs
	Output Output `json:"output"`
}

// Variable is the environment variable in which a daemon passes its children to the program that
// inspects them.
const Variable = "BRINGUPD_CHILDREN"

// Describe returns the variable with its value, in the form NAME=VALUE.
func Describe(children []Child) string {
	text, _ := json.Marshal(children) // cannot fail for this type
	return Variable + "=" + string(text)
}

// Described parses the value of the variable.
func Described(value string) (children []Child, err error) {
	if err = json.Unmarshal([]byte(value), &children); err != nil {
		err = fmt.Errorf("cannot read %s, by which a daemon tells its children: %v", Variable, err)
	}
	return children, err
}

// Wait is an operation of the rendezvous for which a program waits.
type Wait struct {
	PID     int     `json:"-"`    // process that requested it, or 0 if Child is set
	Child   string  `json:"-"`    // child to which the program belongs, or empty if PID is set
	Kind    string  `json:"kind"` // fence or get
	Name    string  `json:"name"`
	SinceS  float64 `json:"since_s"`           // duration of the wait so far, in seconds
	Missing []int   `json:"missing,omitempty"` // ranks for which it waits
}

// Output is the amount and the age of a child's output.
type Output struct {
	Bytes int64   `json:"bytes"`
	AgoS  float64 `json:"ago_s"` // seconds since the last output, if there is any
}

// Seen is the result of inspecting one child of a node.
type Seen struct {
	Child     string   `json:"child"`          // name of the child; empty if Problem concerns the whole node
	Node      int      `json:"node"`           // node index
	Host      string   `json:"host,omitempty"` // host name
	PID       int      `json:"pid,omitempty"`
	Ended     string   `json:"ended,omitempty"`
	Process   *Process `json:"process,omitempty"`   // process of its tree with the most significant state
	Processes int      `json:"processes,omitempty"` // number of processes in its tree
	Cores     float64  `json:"cores"`               // number of cores used by all of them
	Output    Output   `json:"output"`
	Waits     []Wait   `json:"waits,omitempty"`
	Stack     *Stack   `json:"stack,omitempty"` // stack of the thread shown in Process
	Problem   string   `json:"problem,omitempty"`
}

// Node configures the inspection of a node.
type Node struct {
	Children []Child
	// Waits returns the rendezvous operations for which programs of the node wait. It is nil if the
	// job has no rendezvous.
	Waits  func(ctx context.Context) ([]Wait, error)
	Stacks bool
	// For is the duration of the measurement of processor time.
	For time.Duration
}

const (
	// lookTime is the timeout for inspecting the processes of one child, and for requesting waits.
	lookTime = 3 * time.Second
	// mostMembers is the maximum number of processes of a tree that are inspected: those nearest to
	// the child.
	mostMembers = 64
	// looksAtOnce is the maximum number of children that are inspected concurrently.
	looksAtOnce = 16
)

// Look inspects the node's children. It passes the result of each to the callback as soon as it is
// available; calls are never concurrent. Failures are reported in [Seen.Problem].
func (n Node) Look(ctx context.Context, tell func(Seen)) {
	asked := time.Now()
	waits, err := n.waits(ctx)
	if err != nil {
		tell(Seen{Problem: err.Error()})
	}
	// Measure processor time: sample all process trees twice.
	onlooker := process.NewOnlooker()
	first, began := families(onlooker, n.Children), time.Now()
	pause.For(ctx, n.For)
	second, took := families(onlooker, n.Children), time.Since(began)

	// Inspect the children concurrently.
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

// families returns the process trees of the running children. Processes hidden by /proc are left
// out.
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

// member is a process of a tree, with the number of cores that it has used.
type member struct {
	process.Member
	cores float64
}

// cores returns the number of cores that a process tree has used between two samples, in total and
// for each process of the second sample. The total includes child processes that have ended
// meanwhile.
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

// see inspects the process tree of a child.
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

// nearest sorts a process tree by distance from the child: first the child, then its child
// processes, and so on. Processes with unknown parents count as roots, after the child.
func nearest(family []member, child int) (order []member) {
	// Find the parents.
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
	// Append one generation after the other.
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

// candidate is a process that may be shown for its tree.
type candidate struct {
	Process
	parent int
}

// busy is the minimum number of cores that a working process uses, whatever it waited for when it
// was inspected.
const busy = 0.5

// telling returns the process of a tree that best explains its state: one that is stuck or stopped;
// otherwise the busiest of the working ones; otherwise the nearest to the child that does not
// merely wait for its child processes. Candidates must be sorted by distance from the child.
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

// Weights of processes, by significance.
const (
	waitsForChildren = iota + 1
	waiting
	atWork
	held
)

// weight returns the significance of a process, or 0 for one that has ended.
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

// waits requests the rendezvous operations for which the node's programs wait.
func (n Node) waits(ctx context.Context) ([]Wait, error) {
	if n.Waits == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return n.Waits(ctx)
}

// waitsOf returns the waits of a child's processes.
func waitsOf(waits []Wait, child string, family []member) (own []Wait) {
	for _, wait := range waits {
		if wait.Child == child || slices.ContainsFunc(family, func(m member) bool { return m.PID == wait.PID }) {
			own = append(own, wait)
		}
	}
	return own
}
