package worlds

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// The size of the world in each run.
const (
	nodes   = 4
	perNode = 4
	size    = nodes * perNode
)

// kind is a kind of fault.
type kind string

const (
	killRank    kind = "kill -9 of a rank"
	crashRank   kind = "a rank crashes"
	exitRank    kind = "a rank exits by itself"
	abortRank   kind = "a rank aborts"
	outOfMemory kind = "a rank is out of memory"
	killDaemon  kind = "kill -9 of a daemon"
	killNode    kind = "kill -9 of a node"
)

// schedule is the plan for one run.
type schedule struct {
	seed uint64
	mpi  string // the MPI of the ranks; "" means that they connect to each other themselves
	kind kind
	rank int // rank that is struck, or whose node or daemon is struck
	code int // exit code of the rank; 0 if the kind determines it
	// early makes the fault strike when the rank has started, even if the others have not.
	early bool
	after time.Duration // delay from then, or from when all are connected
}

func (s schedule) node() int { return s.rank / perNode }

func (s schedule) String() string {
	when := "all are connected"
	if s.early {
		when = "it has begun"
	}
	return fmt.Sprintf("seed %d: %s%s: rank %d (node %d), code %d, %v after %s", s.seed, s.mpi,
		s.kind, s.rank, s.node(), s.code, s.after, when)
}

// draw returns the schedule of a seed. Consecutive seeds use the kinds in turn.
func draw(seed uint64, kinds []kind) schedule {
	random := rand.New(rand.NewPCG(seed, 13))
	s := schedule{
		seed: seed, kind: kinds[seed%uint64(len(kinds))], rank: random.IntN(size),
		after: time.Duration(random.IntN(200)) * time.Millisecond,
		early: random.IntN(4) == 0,
	}
	switch s.kind {
	case exitRank:
		s.code = []int{1, 3, 76, 255}[random.IntN(4)]
	case abortRank:
		s.code = 42
	case killDaemon, killNode:
		s.early = false // test/chaos covers the earlier phases
	}
	return s
}
