package affinity

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/bringupd/bringupd/pkg/gpu"
)

// LaunchedTask is a process that a launcher has started as one of several on a node, and what the
// launcher has published about them.
type LaunchedTask struct {
	Launcher string // name of the launcher, for messages
	// number of the task on the node, and number of tasks there; -1 and 0 if unknown
	Local, LocalCount int
	NodeCPUs          int  // number of CPUs of all tasks of the node together; 0 if unknown
	OwnGPUs           bool // the visible GPUs are for this task only
}

// VisibleNode is a node as seen by a task.
type VisibleNode struct {
	Node            // with all CPUs to which the task could be bound: those of its cpuset
	BoundCPUs IDSet // CPUs to which the task is bound
}

// DiscoverForTask is like [DiscoverNode], for a task that its launcher may have bound. It examines
// the calling thread, and widens the thread's CPU affinity for a moment.
func DiscoverForTask(gpus gpu.Topology, lookup func(name string) (value string, set bool)) (f VisibleNode, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := threadAffinity(0)
	if err != nil {
		return f, fmt.Errorf("cannot read the CPU affinity of this process: %w", err)
	}
	every := make(IDSet, maxID+1)
	for cpu := range every {
		every[cpu] = cpu
	}
	// Remove a binding by the launcher while the node is discovered, to find all CPUs of the cpuset.
	// the kernel ignores CPUs that are not in the cpuset
	if err := setThreadAffinity(every); err != nil {
		return f, fmt.Errorf("cannot widen the CPU affinity of this process to find its cpuset: %w", err)
	}
	f.Node, err = DiscoverNode("/", gpus, lookup)
	if err := errors.Join(err, setThreadAffinity(own)); err != nil {
		return f, err
	}
	f.BoundCPUs = own.intersect(f.CPUs)
	return f, nil
}

// Formats of [Affinity.Note] for resources that were not divided among the tasks.
const (
	noteBound      = "CPUs are those that %s bound it to"
	noteSharedNear = "CPUs are shared with other ranks near the same GPUs: %s shows each rank only its own GPUs"
	noteSharedNode = "ranks share all CPUs and devices of the node: %s does not report how many ranks run on it"
)

// TaskAffinity returns the binding of the task. If the launcher has bound the task, or gives it
// GPUs of its own, Place keeps these and adds the matching resources. Otherwise it returns the
// task's part from [Node.AssignRanks]. differences are sentences that describe in what way the
// binding is worse than that part.
func (t LaunchedTask) TaskAffinity(f VisibleNode, k ResourceKinds) (p Affinity, differences []string) {
	n := f.restrictCPUs(f.BoundCPUs)
	own := t.OwnGPUs && len(n.GPUs) > 0
	known := 0 <= t.Local && t.Local < t.LocalCount
	// A task with fewer CPUs than its cpuset is not necessarily bound: if the job has no cpuset of its
	// own, these may be all CPUs of the job on this node.
	bound := len(f.BoundCPUs) < len(f.CPUs) && len(f.BoundCPUs) != t.NodeCPUs
	// Select the GPUs of the task.
	gpus, note := n.GPUs, noteBound
	switch {
	case known && !bound && !own:
		return n.AssignRanks(t.LocalCount, k)[t.Local], nil
	case !known && !bound && !own:
		p.Note = fmt.Sprintf(noteSharedNode, t.Launcher)
		return p, []string{p.Note}
	case !own && known:
		gpus = n.divideGPUs(t.LocalCount)[t.Local]
	case !own:
		gpus = nil
	}
	// Without a binding by the launcher, the task shares the CPUs near its GPUs with other tasks.
	if !bound {
		n, note = n.restrictCPUs(n.cpusNear(gpus)), noteSharedNear
	}
	if p = n.affinityFor(gpus, n.allowedCores(), k); k.CPU {
		p.Note, differences = fmt.Sprintf(note, t.Launcher), t.describeFarGPUs(f, gpus)
	}
	return p, differences
}

func (n Node) restrictCPUs(cpus IDSet) Node {
	n.CPUs = n.CPUs.intersect(cpus)
	gpus := make([]GPU, len(n.GPUs))
	for i, g := range n.GPUs {
		if near := g.CPUs.intersect(cpus); len(near) > 0 && !g.IsFar {
			g.CPUs = near
		} else {
			g.CPUs, g.IsFar = n.CPUs, true
		}
		gpus[i] = g
	}
	n.GPUs = gpus
	return n
}

// describeFarGPUs describes GPUs that are near other CPUs than those to which the task is bound.
func (t LaunchedTask) describeFarGPUs(f VisibleNode, gpus []GPU) (differences []string) {
	for _, g := range gpus {
		for _, there := range f.GPUs {
			if there.Name == g.Name && g.IsFar && !there.IsFar {
				differences = append(differences, fmt.Sprintf("%s bound it to CPUs %v, but its GPU %s is near "+
					"CPUs %v", t.Launcher, f.BoundCPUs, g.Name, there.CPUs))
			}
		}
	}
	return differences
}
