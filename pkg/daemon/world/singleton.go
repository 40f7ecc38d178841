package world

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/ranks/mpidetect"
	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

const (
	// minInspectInterval is the delay before the first inspection; it is short enough for very short
	// programs. maxInspectInterval is the maximum interval between inspections; it is long enough for
	// ranks that use no MPI.
	minInspectInterval = 100 * time.Millisecond
	maxInspectInterval = 10 * time.Second
	// allInspectedFrom is the time from which on all ranks are inspected.
	allInspectedFrom = time.Second
	// silentTimeout is how long a rank may have an MPI library loaded without contacting its server
	// before a warning: the first thing that MPI_Init does is to contact the server.
	silentTimeout = 4 * time.Second
)

// singletonDetector detects ranks of this node that run as separate worlds of one rank: they have
// loaded an MPI library that never contacts the MPI server. It warns about the first such rank
// only, because the others will have the same reason.
type singletonDetector struct {
	node *Node
	// loadedMPI returns the MPI library that a process has loaded, or nil if it has none.
	loadedMPI func(pid int) *mpidetect.LoadedMPI

	mu sync.Mutex
	// variables that ranks got from their servers; guarded by mu
	envOfRank map[pmi.ProcID]map[string]string
	// ranks that have not contacted their server, by rank; guarded by mu
	silentRanks map[int]silentRank
	warned      bool // the warning has been logged; guarded by mu
}

type silentRank struct {
	// firstSeen is the time at which the library was first seen.
	firstSeen time.Time
	*mpidetect.LoadedMPI
}

func newSingletonDetector(n *Node) *singletonDetector {
	return &singletonDetector{node: n, loadedMPI: mpidetect.DetectLoaded,
		envOfRank: make(map[pmi.ProcID]map[string]string), silentRanks: make(map[int]silentRank)}
}

func (l *singletonDetector) recordEnv(rank pmi.ProcID, env map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.envOfRank[rank] = env
}

// watchRanks inspects the ranks until the warning has been logged or ctx ends. It returns at once
// if there is only one rank.
func (l *singletonDetector) watchRanks(ctx context.Context) {
	if l.node.plan.RankCount() < 2 {
		return
	}
	for wait, began := minInspectInterval, time.Now(); ctxutil.SleepContext(ctx, wait); {
		for _, rank := range inspectedRanks(l.node.RunningRanks(), time.Since(began)) {
			if l.inspectRank(ctx, rank.Rank, rank.PID) {
				return
			}
		}
		if wait = min(2*wait, maxInspectInterval); l.hasSilentRanks() {
			wait = min(wait, silentTimeout/4)
		}
	}
}

// inspectedRanks returns those of the running ranks that are inspected at this time after the start of
// the world. At first one is sufficient: the ranks load their MPI then, and need the processors.
func inspectedRanks(running []stackdump.RankProcess, age time.Duration) []stackdump.RankProcess {
	if len(running) == 0 || age >= allInspectedFrom {
		return running
	}
	return []stackdump.RankProcess{slices.MinFunc(running, func(a, b stackdump.RankProcess) int {
		return cmp.Compare(a.Rank, b.Rank)
	})}
}

func (l *singletonDetector) hasSilentRanks() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.silentRanks) > 0
}

// inspectRank inspects one rank. It reports whether the warning has been logged.
func (l *singletonDetector) inspectRank(ctx context.Context, rank, pid int) (warned bool) {
	who := pmi.ProcID{Job: l.node.cfg.JobName, Rank: rank}
	// Spawned ranks need no inspection: a spawn succeeds only if MPI works.
	if rank >= l.node.plan.RankCount() || l.node.hasContacted(who) {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.silentRanks, rank)
		return l.warned
	}
	// Reading /proc can block if memory of the process is mapped from an unresponsive file system.
	found, err := ctxutil.CallBounded(ctx, 0, func() (*mpidetect.LoadedMPI, error) { return l.loadedMPI(pid), nil })
	if err != nil || found == nil {
		return false
	}
	// Remember when the library was first seen.
	l.mu.Lock()
	first, known := l.silentRanks[rank]
	if !known {
		first = silentRank{time.Now(), found}
	}
	first.LoadedMPI = found
	l.silentRanks[rank] = first
	l.mu.Unlock()
	if age := time.Since(first.firstSeen); age >= silentTimeout && !l.node.hasContacted(who) {
		return l.warnOnce(who, found, "for "+textutil.BriefDuration(age))
	}
	return false
}

// checkEndedRank is called when a rank has exited with code 0. It logs the warning if the rank
// never contacted its server.
func (l *singletonDetector) checkEndedRank(rank pmi.ProcID) {
	l.mu.Lock()
	silent, known := l.silentRanks[rank.Rank]
	l.mu.Unlock()
	if known && rank.Job == l.node.cfg.JobName && !l.node.hasContacted(rank) {
		l.warnOnce(rank, silent.LoadedMPI, "to its end")
	}
}

// warnOnce logs the warning for a rank, which has loaded seen, with its likely reason, once. It
// returns true.
func (l *singletonDetector) warnOnce(rank pmi.ProcID, seen *mpidetect.LoadedMPI, how string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.warned {
		return true
	}
	l.warned = true
	library, err := seen.IdentifyLibrary()
	if err != nil {
		l.node.cfg.Log.Debug("cannot determine which MPI a rank uses", zap.Error(err))
	}
	reason, fix := mpidetect.ExplainSingleton(mpidetect.RankMPI{LoadedMPI: *seen, MPI: library,
		NoPMIxReason: l.node.noPMIxReason, GivenEnv: l.envOfRank[rank]})
	l.node.cfg.Log.Warn(fmt.Sprintf("%s has %s loaded (%s) and has not connected to its MPI server, %s: if it "+
		"has called MPI_Init, it is a world of 1, not of %d; "+
		"the likely reason: %s; to fix it: %s", l.node.rankName(rank.Rank), cmp.Or(library.String(), "an MPI"),
		library.Path, how, l.node.plan.RankCount(), reason, fix))
	return true
}
