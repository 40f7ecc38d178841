package stackdump

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/process"
)

// Child is a child process of a daemon.
type Child struct {
	Name   string `json:"name"` // such as driver, rank 12, worker
	PID    int    `json:"pid"`
	Ended  string `json:"ended,omitempty"` // description of its end; empty if it runs
	Output Output `json:"output"`
	// Step is the newest step that it has reported; nil if there is none.
	Step *float64 `json:"step,omitempty"`
	// Socket is the socket of the rendezvous of its world, if it is a rank of a role.
	Socket string `json:"socket,omitempty"`
}

// RankInWorld returns the rank of a rank of a role in its world.
func (c Child) RankInWorld() int {
	_, rank := ChildReport{Child: c.Name}.splitName()
	return max(0, rank) // the only process of an instance has no number
}

// SelectChildren returns the children that are processes of an instance of a role, or all children if
// its name is empty.
func SelectChildren(children []Child, instance string) []Child {
	return slices.DeleteFunc(slices.Clone(children), func(c Child) bool {
		kind, _ := ChildReport{Child: c.Name}.splitName()
		return instance != "" && kind != instance
	})
}

// ChildrenVariable is the environment variable in which a daemon passes its children to the program
// that inspects them.
const ChildrenVariable = "BRINGUPD_CHILDREN"

// FormatChildren returns the variable with its value, in the form NAME=VALUE.
func FormatChildren(children []Child) string {
	text, _ := json.Marshal(children) // cannot fail for this type
	return ChildrenVariable + "=" + string(text)
}

// ParseChildren parses the value of the variable.
func ParseChildren(value string) (children []Child, err error) {
	if err = json.Unmarshal([]byte(value), &children); err != nil {
		err = fmt.Errorf("cannot read %s, which lists the daemon's child processes: %v",
			ChildrenVariable, err)
	}
	return children, err
}

// Wait is an operation of the rendezvous for which a program waits.
type Wait struct {
	Child   string  `json:"-"`    // child to which the program belongs
	Kind    string  `json:"kind"` // fence or get
	Name    string  `json:"name"`
	SinceS  float64 `json:"since_s"`           // duration of the wait so far, in seconds
	Missing []int   `json:"missing,omitempty"` // ranks for which it waits
}

// Output is the amount and the age of a child's output.
type Output struct {
	Bytes int64   `json:"bytes"`
	AgoS  float64 `json:"ago_s"`           // seconds since the last output, if there is any
	Error string  `json:"error,omitempty"` // after which it has printed nothing for long
}

// ChildReport is the result of inspecting one child of a node.
type ChildReport struct {
	// name of the child; empty if Problem concerns the whole node
	Child string `json:"child"`
	Node  int    `json:"node"` // node index
	// Member is the member index of the daemon whose child it is, which differs for further job steps.
	Member int    `json:"-"`
	Host   string `json:"host,omitempty"` // host name
	PID    int    `json:"pid,omitempty"`
	Ended  string `json:"ended,omitempty"`
	// process of its tree with the most significant state
	Process   *Process `json:"process,omitempty"`
	Processes int      `json:"processes,omitempty"` // number of processes in its tree
	Cores     float64  `json:"cores"`               // number of cores used by all of them
	Output    Output   `json:"output"`
	Step      *float64 `json:"step,omitempty"` // see [Child]
	Waits     []Wait   `json:"waits,omitempty"`
	Stack     *Stack   `json:"stack,omitempty"` // stack of the thread shown in Process
	Problem   string   `json:"problem,omitempty"`
	// HasNCCL reports that NCCL of a process of this node can be asked about the whole job.
	HasNCCL bool `json:"nccl,omitempty"`
}

// NodeInspection configures the inspection of a node.
type NodeInspection struct {
	Children []Child
	// ListWaits returns the rendezvous operations for which programs of the node wait. It is nil if
	// the job has no rendezvous.
	ListWaits  func(ctx context.Context) ([]Wait, error)
	ReadStacks bool
	// Duration is the duration of the measurement of processor time.
	Duration time.Duration
}

const (
	// inspectTimeout is the timeout for inspecting the processes of one child, and for requesting
	// waits.
	inspectTimeout = 3 * time.Second
	// maxMembers is the maximum number of processes of a tree that are inspected: those nearest to
	// the child.
	maxMembers = 64
	// maxConcurrentInspections is the maximum number of children that are inspected concurrently.
	maxConcurrentInspections = 16
)

// InspectChildren inspects the node's children. It passes the result of each to the callback as
// soon as it is available; calls are never concurrent. Failures are reported in
// [ChildReport.Problem].
func (n NodeInspection) InspectChildren(ctx context.Context, report func(ChildReport)) {
	asked := time.Now()
	var waits []Wait
	if n.ListWaits != nil {
		limited, cancel := context.WithTimeout(ctx, inspectTimeout)
		var err error
		if waits, err = n.ListWaits(limited); err != nil {
			report(ChildReport{Problem: err.Error()})
		}
		cancel()
	}
	// Sample all process trees twice: their processor time, and the threads that do not run.
	const root = procRoot("/proc")
	scanner := process.NewFamilyScanner()
	first, began := processTrees(scanner, n.Children), time.Now()
	waiting := make(map[string]string)
	for _, family := range first {
		for _, m := range family[:min(len(family), maxMembers)] {
			maps.Copy(waiting, root.waitingThreads(ctx, m.PID))
		}
	}
	ctxutil.SleepContext(ctx, n.Duration)
	second, took := processTrees(scanner, n.Children), time.Since(began)

	// Inspect the children concurrently.
	var mu sync.Mutex
	var inspections errgroup.Group
	inspections.SetLimit(maxConcurrentInspections)
	stacks := newStackReader(ctx)
	for _, child := range n.Children {
		inspections.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, inspectTimeout)
			defer cancel()
			all, family := coresUsed(first[child.PID], second[child.PID], took)
			seen := root.inspectChild(limited, child, family, waiting)
			seen.Cores = all
			seen.Output.AgoS += time.Since(asked).Seconds()
			seen.Waits = slices.DeleteFunc(slices.Clone(waits), func(w Wait) bool { return w.Child != child.Name })
			if n.ReadStacks && seen.Process != nil {
				seen.Stack = stacks.readStack(*seen.Process)
			}
			mu.Lock()
			defer mu.Unlock()
			report(seen)
			return nil
		})
	}
	_ = inspections.Wait()
	stacks.cancel()
}

// processTrees returns the process trees of the running children. Processes hidden by /proc are
// left out.
func processTrees(scanner *process.FamilyScanner, children []Child) map[int][]process.FamilyMember {
	var living []int
	for _, child := range children {
		if child.Ended == "" {
			living = append(living, child.PID)
		}
	}
	families, _ := scanner.ScanFamilies(living)
	return families
}

// member is a process of a tree, with the number of cores that it has used.
type member struct {
	process.FamilyMember
	cores float64
}

// coresUsed returns the number of cores that a process tree has used between two samples, in total
// and for each process of the second sample. The total includes child processes that have ended
// meanwhile.
func coresUsed(first, second []process.FamilyMember, took time.Duration) (all float64, family []member) {
	type identity struct {
		pid   int
		start uint64
	}
	used := make(map[identity]time.Duration)
	for _, m := range first {
		used[identity{m.PID, m.Start}] = m.CPUTime
		all -= (m.CPUTime + m.ReapedCPUTime).Seconds()
	}
	seconds := max(took, time.Millisecond).Seconds()
	for _, m := range second {
		all += (m.CPUTime + m.ReapedCPUTime).Seconds()
		own := max(0, m.CPUTime-used[identity{m.PID, m.Start}])
		family = append(family, member{m, own.Seconds() / seconds})
	}
	return max(0, all/seconds), family
}

func (root procRoot) inspectChild(
	ctx context.Context, child Child, family []member, waiting map[string]string,
) ChildReport {
	seen := ChildReport{
		Child: child.Name, PID: child.PID, Ended: child.Ended, Processes: len(family),
		Output: child.Output, Step: child.Step,
	}
	if child.Ended != "" {
		return seen
	}
	if len(family) == 0 {
		seen.Problem = fmt.Sprintf("cannot see process %d: it has just ended, or it is hidden", child.PID)
		return seen
	}
	var processes []Process
	order := sortByDistance(family, child.PID)
	for _, m := range order[:min(len(order), maxMembers)] {
		p := root.inspectProcess(ctx, m.PID, waiting)
		p.Cores, p.parent = m.cores, m.Parent
		processes = append(processes, p)
	}
	seen.Process = mostSignificant(processes)
	return seen
}

// sortByDistance sorts a process tree by distance from the child: first the child, then its child
// processes, and so on. Processes with unknown parents come after the child.
func sortByDistance(family []member, child int) []member {
	parents := make(map[int]int)
	for _, m := range family {
		parents[m.PID] = m.Parent
	}
	distance := func(pid int) int {
		steps := 0
		for pid != child && steps <= len(family) { // two reads of /proc may show a loop
			parent, isKnown := parents[pid]
			if !isKnown {
				break
			}
			pid, steps = parent, steps+1
		}
		return steps
	}
	return slices.SortedStableFunc(slices.Values(family), func(a, b member) int {
		return cmp.Or(distance(a.PID)-distance(b.PID), cmp.Compare(a.Start, b.Start))
	})
}

// minBusyCores is the minimum number of cores that a working process uses, whatever it waited for
// when it was inspected.
const minBusyCores = 0.5

// mostSignificant returns the process of a tree that best explains its state: one that is stuck or
// stopped; otherwise the busiest of the working ones; otherwise the nearest to the child that does
// not merely wait for its child processes. The family must be sorted by distance from the child.
func mostSignificant(family []Process) (best *Process) {
	weight := 0
	for _, p := range family {
		w := p.significance(family)
		if best == nil || w > weight || w == weight && w == weightWorking && p.Cores > best.Cores {
			best, weight = &p, w
		}
	}
	return best
}

// Weights of processes, by significance.
const (
	weightParent = iota + 1
	weightWaiting
	weightWorking
	weightHeld
)

// significance returns the significance of a process, or 0 for one that has ended.
func (p Process) significance(family []Process) int {
	isParent := slices.ContainsFunc(family, func(o Process) bool { return o.parent == p.PID })
	awaitsChild := slices.Contains([]string{callWait4, callWaitID, callSigSuspend}, p.Call)
	switch {
	case p.State == "" || p.State == stateZombie:
		return 0
	case p.State == stateStopped || p.State == stateTraced:
		return weightHeld
	case p.isBusy():
		return weightWorking
	// A parent that has called vfork waits for its child in D state.
	case isParent && (awaitsChild || p.State == stateStuck):
		return weightParent
	case p.isStuck:
		return weightHeld
	}
	return weightWaiting
}
