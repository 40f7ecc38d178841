package binding

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/gpu"
)

// Task is a process that a launcher has started as one of several on a node, and what the launcher
// has published about them.
type Task struct {
	By            string // name of the launcher, for messages
	Local, Locals int    // number of the task on the node, and number of tasks there; -1 and 0 if unknown
	CPUs          int    // number of CPUs of all tasks of the node together; 0 if unknown
	OwnGPUs       bool   // the visible GPUs are for this task only
}

// Found is a node as seen by a task.
type Found struct {
	Node        // with all CPUs to which the task could be bound: those of its cpuset
	Own    Set  // CPUs to which the task is bound
	Policy bool // a memory policy has been set
}

// Find is like [Discover], for a task that its launcher may have bound. It examines the calling
// thread, and widens the thread's CPU affinity for a moment.
func Find(gpus gpu.Topology, lookup func(name string) (value string, set bool)) (f Found, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := affinity(0)
	if err != nil {
		return f, fmt.Errorf("cannot find out what this process may use: %w", err)
	}
	every := make(Set, mostNumber+1)
	for cpu := range every {
		every[cpu] = cpu
	}
	// Remove a binding by the launcher while the node is discovered, to find all CPUs of the cpuset.
	if err := setAffinity(every); err != nil { // the kernel ignores CPUs that are not in the cpuset
		return f, fmt.Errorf("cannot find out what this process could use: %w", err)
	}
	f.Node, err = Discover("/", gpus, lookup)
	if err := errors.Join(err, setAffinity(own)); err != nil {
		return f, err
	}
	chosen, err := policy(0)
	f.Own, f.Policy = own.and(f.CPUs), err == nil && chosen.mode != unix.MPOL_DEFAULT
	return f, nil
}

// Formats of [Place.Note] for resources that were not divided among the tasks.
const (
	noteBound  = "the CPUs that %s has bound it to"
	noteCommon = "CPUs in common with others that are near the same: %s shows each its own GPUs alone"
	noteAlone  = "what its node has, in common with others: %s does not tell how many ranks are there"
)

// Place returns the binding of the task. If the launcher has bound the task, or gives it GPUs of
// its own, Place keeps these and adds the matching resources. Otherwise it returns the task's part
// from [Node.Assign]. differences are sentences that describe in what way the binding is worse than
// that part.
func (t Task) Place(f Found, k Kinds) (p Place, differences []string) {
	k.Memory = k.Memory && !f.Policy
	n := f.within(f.Own)
	own := t.OwnGPUs && len(n.GPUs) > 0
	known := 0 <= t.Local && t.Local < t.Locals
	// A task with fewer CPUs than its cpuset is not necessarily bound: if the job has no cpuset of its
	// own, these may be all CPUs of the job on this node.
	bound := len(f.Own) < len(f.CPUs) && len(f.Own) != t.CPUs
	// Select the GPUs of the task.
	gpus, note := n.GPUs, noteBound
	switch {
	case known && !bound && !own:
		return n.Assign(t.Locals, k)[t.Local], nil
	case !known && !bound && !own:
		p.Note = fmt.Sprintf(noteAlone, t.By)
		return p, []string{"it has " + p.Note}
	case !own && known:
		gpus = n.shareGPUs(t.Locals)[t.Local]
	case !own:
		gpus = nil
	}
	// Without a binding by the launcher, the task shares the CPUs near its GPUs with other tasks.
	if !bound {
		n, note = n.within(n.near(gpus)), noteCommon
	}
	if p = n.place(gpus, n.allowed(), k); k.CPU {
		p.Note, differences = fmt.Sprintf(note, t.By), t.far(f, gpus)
	}
	return p, differences
}

// within returns the node with fewer allowed CPUs.
func (n Node) within(cpus Set) Node {
	n.CPUs = n.CPUs.and(cpus)
	gpus := make([]GPU, len(n.GPUs))
	for i, g := range n.GPUs {
		if near := g.CPUs.and(cpus); len(near) > 0 && !g.Far {
			g.CPUs = near
		} else {
			g.CPUs, g.Far = n.CPUs, true
		}
		gpus[i] = g
	}
	n.GPUs = gpus
	return n
}

// far describes GPUs that are near other CPUs than those to which the task is bound.
func (t Task) far(f Found, gpus []GPU) (differences []string) {
	for _, g := range gpus {
		for _, there := range f.GPUs {
			if there.Name == g.Name && g.Far && !there.Far {
				differences = append(differences, fmt.Sprintf("%s has bound it to CPUs %v, and its GPU %s is near CPUs %v", t.By, f.Own, g.Name, there.CPUs))
			}
		}
	}
	return differences
}
