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
	// firstLook is soon enough for the first of the shortest programs, and restLook rare enough for ranks that have no MPI at all.
	firstLook = 100 * time.Millisecond
	restLook  = 10 * time.Second
	// silence is for how long a rank has an MPI loaded and says nothing until that is told: MPI_Init speaks first of all.
	silence = 4 * time.Second
)

// lone finds the ranks of this node that have come up as worlds of one: their MPI is loaded, and has never spoken to who serves it. It tells of
// the first, for the others will have the same reason.
type lone struct {
	n    *Node
	look func(pid int) *mpi.Loaded

	mu   sync.Mutex
	gave map[pmi.Proc]map[string]string // what ranks were given, guarded by mu
	seen map[int]silent                 // who had an MPI, and had not spoken, by rank; guarded by mu
	told bool                           // guarded by mu
}

// silent is a rank that has an MPI loaded.
type silent struct {
	since time.Time
	*mpi.Loaded
}

func newLone(n *Node) *lone {
	return &lone{n: n, look: mpi.Look, gave: make(map[pmi.Proc]map[string]string), seen: make(map[int]silent)}
}

func (l *lone) given(rank pmi.Proc, env map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gave[rank] = env
}

// watch looks at the ranks until ctx ends, or one was told of.
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

// waits tells whether a rank was seen that may yet speak.
func (l *lone) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen) > 0
}

// at looks at one rank, and tells whether one was told of.
func (l *lone) at(ctx context.Context, rank, pid int) (told bool) {
	who := pmi.Proc{Job: l.n.cfg.Job, Rank: rank}
	if rank >= l.n.plan.Ranks() || l.n.served.spoke(who) { // those that were spawned have spoken, or they would not be there
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.seen, rank)
		return l.told
	}
	found, err := pause.Bounded(ctx, 0, func() (*mpi.Loaded, error) { return l.look(pid), nil }) // /proc hangs where its memory does
	if err != nil || found == nil {
		return false
	}
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

// ended is told of a rank that has ended well.
func (l *lone) ended(rank pmi.Proc) {
	l.mu.Lock()
	_, known := l.seen[rank.Rank]
	l.mu.Unlock()
	if known && rank.Job == l.n.cfg.Job && !l.n.served.spoke(rank) {
		l.tell(rank, "to its end")
	}
}

// tell tells of a rank, once.
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
