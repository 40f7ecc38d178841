package process

import (
	"os"
	"time"
)

// Member is one process of a child's family, as an Onlooker saw it.
type Member struct {
	PID, Parent int
	Start       uint64 // ticks since boot: with PID, what tells it from all other processes
	Name        string
	State       byte          // as ps shows it
	Used        time.Duration // processor time up to now
	Waited      time.Duration // that of children that it has waited for, which are not there any more
}

// Onlooker finds the families of a daemon's children for who only looks at them, in the daemon or beside it. What the
// daemon's censuses have noted it does not know. It is for one goroutine.
type Onlooker struct{ looks *looks }

// NewOnlooker returns one that has looked at nothing yet.
func NewOnlooker() *Onlooker { return &Onlooker{looks: newLooks(0)} }

// Families returns the family of each of the processes that a daemon has started as its children, by one pass over
// /proc. Children that are gone have none. Those who have left a child's session and lost their parents are found by
// their environment where marks says so, which may take a quarter of a second for each process that hangs. The error
// means that not all could be seen.
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

// noMark is no child's mark.
const noMark = "-"

// readMarks fills in the marks of the children, by which their claims know others from then on, and of all who are in
// no family by other signs.
func readMarks(all []procStat, byPID map[int]procStat, claims map[int]claim) {
	known := make(map[int]bool)
	for pid, claim := range claims {
		members, _ := claim.family(all)
		for _, p := range members {
			known[p.pid] = true
		}
		if own := byPID[pid].read(); len(own) > 0 {
			claim.mark = own[len(own)-1] // the outer ones are of daemons around its own
			claims[pid] = claim
		}
	}
	for i, p := range all {
		if !known[p.pid] && !p.dead && !p.kernel {
			all[i].marks = p.read()
		}
	}
}

func (p procStat) member() Member {
	const tick = time.Second / ticksPerSecond
	return Member{
		PID: p.pid, Parent: p.ppid, Start: p.start, Name: p.name, State: p.state,
		Used: time.Duration(p.used) * tick, Waited: time.Duration(p.waited) * tick,
	}
}
