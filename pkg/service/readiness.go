package service

import (
	"sync"
	"time"
)

// minReadinessInterval is the shortest time between two changes of readiness.
const minReadinessInterval = 5 * time.Second

// Readiness joins the readiness of the processes of a generation on this node, which is ready as
// long as all are. Its changes are numbered.
type Readiness struct {
	mu        sync.Mutex
	unready   map[int]bool // keyed by rank
	change    int          // number of the newest change; the node is ready after an even one; guarded by mu
	published time.Time    // when that was, or when the readiness was made
	withdrawn bool         // it does not become ready again
}

// NewReadiness returns the readiness of a node that is ready by a change with this number.
func NewReadiness(change int) *Readiness {
	return &Readiness{change: change, published: time.Now(), unready: make(map[int]bool)}
}

// Update records whether a process is ready. It returns the number of a change of the node, which is
// to be published, and otherwise 0: there is at most one in minReadinessInterval.
func (r *Readiness) Update(rank int, isReady bool) (change int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.unready, rank); !isReady {
		r.unready[rank] = true
	}
	wasReady, allReady := r.change%2 == 0, len(r.unready) == 0
	if allReady == wasReady || r.withdrawn || time.Since(r.published) < minReadinessInterval {
		return 0
	}
	r.change++
	r.published = time.Now()
	return r.change
}

// Withdraw ends the readiness for good. It returns the number of the change that is to be published, and
// 0 if there is none.
func (r *Readiness) Withdraw() (change int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.withdrawn = true; r.change%2 == 1 {
		return 0
	}
	r.change++
	return r.change
}

// Forget forgets a process that has ended, or is about to.
func (r *Readiness) Forget(rank int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.unready, rank)
}
