package process

import (
	"os"
	"time"
)

// FamilyMember is one process of a child's family, as seen by an [FamilyScanner].
type FamilyMember struct {
	PID, Parent   int
	Start         uint64 // ticks since boot; with PID, the identity of the process
	Name          string
	State         byte          // the letter that ps shows
	CPUTime       time.Duration // processor time so far
	ReapedCPUTime time.Duration // processor time of its children that it has reaped
}

// FamilyScanner finds the families of a daemon's children for code that only observes them, inside
// or outside the daemon. It does not know the sessions that the daemon's scans have recorded. It
// must be used by one goroutine only.
type FamilyScanner struct{ scanner *procScanner }

// NewFamilyScanner returns an [FamilyScanner] that has not scanned yet.
func NewFamilyScanner() *FamilyScanner { return &FamilyScanner{scanner: newProcScanner(0)} }

// ScanFamilies returns the family of each process in children, which a daemon has started as its
// children, by one scan of /proc. Children that have ended have no family. If marks is set,
// environments are read to find processes that have left the child's session and lost their
// parents; this may take a quarter of a second for each process that hangs. An error means that
// some processes could not be inspected.
func (o *FamilyScanner) ScanFamilies(children []int, marks bool) (map[int][]FamilyMember, error) {
	all, err := o.scanner.scanProcesses()
	byPID := make(map[int]procStat, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	claims := make(map[int]familyCriteria)
	for _, pid := range children {
		if child, there := byPID[pid]; there {
			claims[pid] = familyCriteria{mark: noMark, notBefore: child.start, sessions: []familySession{{sid: pid, start: child.start}}, ownPID: os.Getpid()}
		}
	}
	if marks {
		readFamilyMarks(all, byPID, claims)
	}
	families := make(map[int][]FamilyMember, len(claims))
	for pid, claim := range claims {
		members, _ := claim.findMembers(all)
		for _, p := range members {
			families[pid] = append(families[pid], p.asMember())
		}
	}
	return families, err
}

// noMark is a string that is not the mark of any child.
const noMark = "-"

// readFamilyMarks reads the children's environments and sets the marks of their claims. It also
// reads the environments of all processes that are in no family by other criteria.
func readFamilyMarks(all []procStat, byPID map[int]procStat, claims map[int]familyCriteria) {
	known := make(map[int]bool)
	for pid := range claims {
		known[byPID[pid].ppid] = true // the daemon, which has a child's limit while it forks
	}
	for pid, claim := range claims {
		members, _ := claim.findMembers(all)
		for _, p := range members {
			known[p.pid] = true
		}
		if own := byPID[pid].readMarks(); len(own) > 0 {
			claim.mark = own[len(own)-1] // the earlier marks belong to enclosing daemons
			claims[pid] = claim
		}
	}
	for i, p := range all {
		if !known[p.pid] && !p.dead && !p.kernel {
			all[i].marks = p.readMarks()
		}
	}
}

// asMember converts p to a [FamilyMember].
func (p procStat) asMember() FamilyMember {
	const tick = time.Second / ticksPerSecond
	return FamilyMember{
		PID: p.pid, Parent: p.ppid, Start: p.start, Name: p.name, State: p.state,
		CPUTime: time.Duration(p.cpuTicks) * tick, ReapedCPUTime: time.Duration(p.reapedCPUTicks) * tick,
	}
}
