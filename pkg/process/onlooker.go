package process

import (
	"os"
	"time"
)

// Member is one process of a child's family, as seen by an [Onlooker].
type Member struct {
	PID, Parent int
	Start       uint64 // ticks since boot; with PID, the identity of the process
	Name        string
	State       byte          // the letter that ps shows
	Used        time.Duration // processor time so far
	Waited      time.Duration // processor time of its children that it has reaped
}

// Onlooker finds the families of a daemon's children for code that only observes them, inside or
// outside the daemon. It does not know the sessions that the daemon's scans have recorded. It must
// be used by one goroutine only.
type Onlooker struct{ looks *looks }

// NewOnlooker returns an [Onlooker] that has not scanned yet.
func NewOnlooker() *Onlooker { return &Onlooker{looks: newLooks(0)} }

// Families returns the family of each process in children, which a daemon has started as its
// children, by one scan of /proc. Children that have ended have no family. If marks is set,
// environments are read to find processes that have left the child's session and lost their
// parents; this may take a quarter of a second for each process that hangs. An error means that
// some processes could not be inspected.
func (o *Onlooker) Families(children []int, marks bool) (map[int][]Member, error) {
	all, err := o.looks.all()
	byPID := make(map[int]procStat, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	claims := make(map[int]claim)
	for _, pid := range children {
		if child, there := byPID[pid]; there {
			claims[pid] = claim{mark: noMark, since: child.start, roots: []root{{sid: pid, start: child.start}}, self: os.Getpid()}
		}
	}
	if marks {
		readMarks(all, byPID, claims)
	}
	families := make(map[int][]Member, len(claims))
	for pid, claim := range claims {
		members, _ := claim.family(all)
		for _, p := range members {
			families[pid] = append(families[pid], p.member())
		}
	}
	return families, err
}

// noMark is a string that is not the mark of any child.
const noMark = "-"

// readMarks reads the children's environments and sets the marks of their claims. It also reads the
// environments of all processes that are in no family by other criteria.
func readMarks(all []procStat, byPID map[int]procStat, claims map[int]claim) {
	known := make(map[int]bool)
	for pid, claim := range claims {
		members, _ := claim.family(all)
		for _, p := range members {
			known[p.pid] = true
		}
		if own := byPID[pid].read(); len(own) > 0 {
			claim.mark = own[len(own)-1] // the earlier marks belong to enclosing daemons
			claims[pid] = claim
		}
	}
	for i, p := range all {
		if !known[p.pid] && !p.dead && !p.kernel {
			all[i].marks = p.read()
		}
	}
}

// member converts p to a [Member].
func (p procStat) member() Member {
	const tick = time.Second / ticksPerSecond
	return Member{
		PID: p.pid, Parent: p.ppid, Start: p.start, Name: p.name, State: p.state,
		Used: time.Duration(p.used) * tick, Waited: time.Duration(p.waited) * tick,
	}
}
