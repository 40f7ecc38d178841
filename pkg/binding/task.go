package binding

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/gpu"
)

// Task is a process that a launcher has started as one of several on its node, and what the launcher has said of that.
type Task struct {
	By            string // the launcher, in words
	Local, Locals int    // the task's number on the node, and how many there are; -1 and 0 where nobody knows
	CPUs          int    // how many those of the node have together; 0 where nobody knows
	OwnGPUs       bool   // those that it sees are for it alone
}

// Found is a node as a task finds it.
type Found struct {
	Node        // with all CPUs that the task could be bound to: those of its cpuset
	Own    Set  // those of them that it is bound to
	Policy bool // somebody has chosen what memory it uses
}

// Find is Discover for a task that may have been bound by who has started it: the calling thread.
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
	if err := setAffinity(every); err != nil { // the kernel leaves out those that the cpuset lacks
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

// The words for what was not shared out among tasks.
const (
	noteBound  = "the CPUs that %s has bound it to"
	noteCommon = "CPUs in common with others that are near the same: %s shows each its own GPUs alone"
	noteAlone  = "what its node has, in common with others: %s does not tell how many ranks are there"
)

// Place is that of the task. Where the launcher has bound it, or shows it GPUs of its own, that is what it has, and what
// goes with that; otherwise it has the share that Assign gives it. Differences tell in sentences what is not as Assign
// would have it, and slower.
func (t Task) Place(f Found, k Kinds) (p Place, differences []string) {
	k.Memory = k.Memory && !f.Policy
	n := f.within(f.Own)
	own := t.OwnGPUs && len(n.GPUs) > 0
	known := 0 <= t.Local && t.Local < t.Locals
	// Fewer CPUs than the cpuset has may be all that the job has on the node, where it has no cpuset of its own.
	bound := len(f.Own) < len(f.CPUs) && len(f.Own) != t.CPUs
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
	if !bound {
		n, note = n.within(n.near(gpus)), noteCommon
	}
	if p = n.place(gpus, n.allowed(), k); k.CPU {
		p.Note, differences = fmt.Sprintf(note, t.By), t.far(f, gpus)
	}
	return p, differences
}

// within is the node with fewer CPUs that may be used.
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

// far tells of GPUs that are near other CPUs than those that the task is bound to.
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
