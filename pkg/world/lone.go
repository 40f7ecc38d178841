package world

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/mpi"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	// firstLook is the delay before the first inspection; it is short enough for very short programs.
	// restLook is the maximum interval between inspections; it is long enough for ranks that use no
	// MPI.
	firstLook = 100 * time.Millisecond
	restLook  = 10 * time.Second
	// silence is how long a rank may have an MPI library loaded without contacting its server before a
	// warning: the first thing that MPI_Init does is to contact the server.
	silence = 4 * time.Second
)

// lone detects ranks of this node that run as separate worlds of one rank: they have loaded an MPI
// library that never contacts the MPI server. It warns about the first such rank only, because the
// others will have the same reason.
type lone struct {
	n *Node
	// look returns the MPI library that a process has loaded, or nil if it has none.
	look func(pid int) *mpi.Loaded

	mu   sync.Mutex
	gave map[pmi.Proc]map[string]string // variables that ranks got from their servers; guarded by mu
	seen map[int]silent                 // ranks that have not contacted their server, by rank; guarded by mu
	told bool                           // the warning has been logged; guarded by mu
}

// silent is a rank that has loaded an MPI library and has not contacted its server.
type silent struct {
	// since is the time at which the library was first seen.
	since time.Time
	*mpi.Loaded
}

func newLone(n *Node) *lone {
	return &lone{n: n, look: mpi.Look, gave: make(map[pmi.Proc]map[string]string), seen: make(map[int]silent)}
}

// given records the variables that a rank gets from its servers.
func (l *lone) given(rank pmi.Proc, env map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gave[rank] = env
}

// watch inspects the ranks until the warning has been logged or ctx ends. It returns at once if
// there is only one rank, or in a simulation.
func (l *lone) watch(ctx context.Context) {
	if l.n.plan.Ranks() < 2 || l.n.cfg.Play.Ranks != nil {
		return
	}
	for wait := firstLook; pause.For(ctx, wait); {
		for _, rank := range l.n.Running() {
			if l.at(ctx, rank.Rank, rank.PID) {
				return
			}
		}
		if wait = min(2*wait, restLook); l.waits() {
			wait = min(wait, silence/4)
		}
	}
}

// waits reports whether a rank has loaded an MPI library and has not contacted its server yet.
func (l *lone) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen) > 0
}

// at inspects one rank. It reports whether the warning has been logged.
func (l *lone) at(ctx context.Context, rank, pid int) (told bool) {
	who := pmi.Proc{Job: l.n.cfg.Job, Rank: rank}
	// Spawned ranks need no inspection: a spawn succeeds only if MPI works.
	if rank >= l.n.plan.Ranks() || l.n.served.spoke(who) {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.seen, rank)
		return l.told
	}
	// Reading /proc can block if memory of the process is mapped from an unresponsive file system.
	found, err := pause.Bounded(ctx, 0, func() (*mpi.Loaded, error) { return l.look(pid), nil })
	if err != nil || found == nil {
		return false
	}
	// Remember when the library was first seen.
	l.mu.Lock()
	first, known := l.seen[rank]
	if !known {
		first = silent{time.Now(), found}
	}
	first.Loaded = found
	l.seen[rank] = first
	l.mu.Unlock()
	if age := time.Since(first.since); age >= silence && !l.n.served.spoke(who) {
		return l.tell(who, "for "+prose.Brief(age))
	}
	return false
}

// ended is called when a rank has exited with code 0. It logs the warning if the rank never
// contacted its server.
func (l *lone) ended(rank pmi.Proc) {
	l.mu.Lock()
	_, known := l.seen[rank.Rank]
	l.mu.Unlock()
	if known && rank.Job == l.n.cfg.Job && !l.n.served.spoke(rank) {
		l.tell(rank, "to its end")
	}
}

// tell logs the warning for a rank with its likely reason, once. It returns true.
func (l *lone) tell(rank pmi.Proc, how string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told {
		return true
	}
	l.told = true
	seen := l.seen[rank.Rank].Loaded
	library, err := seen.Library()
	if err != nil {
		l.n.cfg.Log.Debug("cannot tell which MPI a rank has", zap.Error(err))
	}
	reason, mend := mpi.Alone(mpi.Facts{Loaded: *seen, MPI: library, NoPMIx: l.n.served.why, Given: l.gave[rank]})
	l.n.cfg.Log.Warn(fmt.Sprintf("rank %d on %s has %s loaded (%s) and has not said a word to who serves it MPI, %s: where it has called MPI_Init, it is a world of 1, not one of %d; "+
		"the likely reason: %s; to mend it: %s", rank.Rank, l.n.cfg.Host, cmp.Or(library.String(), "an MPI"), library.Path, how, l.n.plan.Ranks(), reason, mend))
	return true
}
