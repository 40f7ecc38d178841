package process

import (
	"os"
	"slices"
	"strings"
	"time"
)

// familySession is a session that belongs to a family.
type familySession struct {
	sid   int
	start uint64 // start time of the session leader
	// when it was last known to belong to the family, used if the leader has ended; 0: it does now
	lastOwned uint64
}

// familyCriteria holds the criteria by which the members of a family are recognised.
type familyCriteria struct {
	// mark is a child's mark or, if it ends in a dot, the common prefix of all marks of one daemon.
	mark       string
	notBefore  uint64 // processes that started earlier are not members
	sessions   []familySession
	orphanPIDs map[int]bool // orphans that are members
	ownPID     int          // PID of the calling process, never a member
	daemonPID  int          // PID of the daemon, never a member, if another process calls
}

// findMembers returns the living members among all processes, and the sessions that belong to the
// family because of them. It is a pure function of its arguments.
func (c familyCriteria) findMembers(all []procStat) (alive []procStat, sessions []familySession) {
	// Ignore sessions with a reused ID.
	byPID := make(map[int]procStat, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	roots := slices.DeleteFunc(slices.Clone(c.sessions), func(r familySession) bool { return r.isRecycled(byPID) })
	// Membership is transitive: repeat until a pass finds no new member.
	kin := make(map[int]bool)
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if kin[p.pid] || !c.isEligible(p) {
				continue
			}
			descends := isMemberPID(byPID, kin, p.ppid, p) || isMemberPID(byPID, kin, p.sid, p)
			if descends || c.orphanPIDs[p.pid] || c.hasMark(p) || isInSessions(p, roots, byPID) {
				kin[p.pid], grown = true, true
			}
		}
	}
	for _, p := range all {
		if kin[p.pid] && !p.dead {
			alive = append(alive, p)
		}
	}
	return alive, sessionsOfMembers(alive, roots, byPID, kin)
}

// sessionsOfMembers returns the sessions of the living members that belong to the family: those in
// roots, and those led by a member.
func sessionsOfMembers(
	alive []procStat, roots []familySession, byPID map[int]procStat, kin map[int]bool,
) []familySession {
	var out []familySession
	for _, p := range alive {
		has := func(r familySession) bool { return r.sid == p.sid }
		if slices.ContainsFunc(out, has) {
			continue
		}
		if i := slices.IndexFunc(roots, has); i >= 0 {
			out = append(out, roots[i])
		} else if leader := byPID[p.sid]; kin[p.sid] && leader.sid == p.sid {
			out = append(out, familySession{sid: p.sid, start: leader.start})
		}
	}
	return out
}

// isRecycled reports whether the session's ID now belongs to another process. The kernel does not
// reuse an ID while any process is in the session with that ID, so the old session has ended
// completely.
func (r familySession) isRecycled(byPID map[int]procStat) bool {
	leader, found := byPID[r.sid]
	return found && leader.start != r.start
}

// isEligible reports whether p can be a member at all, whatever the criteria.
func (c familyCriteria) isEligible(p procStat) bool {
	return p.pid != c.ownPID && p.pid != c.daemonPID && p.pid > 1 && !p.kernel && p.start >= c.notBefore
}

// hasMark reports whether the environment of p, as far as it was read, has the mark.
func (c familyCriteria) hasMark(p procStat) bool {
	return slices.ContainsFunc(p.marks, func(mark string) bool {
		if strings.HasSuffix(c.mark, ".") {
			return strings.HasPrefix(mark, c.mark)
		}
		return mark == c.mark
	})
}

// isInSessions reports whether p is in one of the sessions. If the session leader has ended, a
// process that started after [familySession.lastOwned] may be in a later session with the same ID,
// so it does not count.
func isInSessions(p procStat, roots []familySession, byPID map[int]procStat) bool {
	return slices.ContainsFunc(roots, func(r familySession) bool {
		_, led := byPID[r.sid]
		return p.sid == r.sid && p.start >= r.start && (led || r.lastOwned == 0 || p.start <= r.lastOwned)
	})
}

// isMemberPID reports whether the process with this number, which is the parent or the session
// leader of p, is a member. If it started after p it is neither: its PID was reused.
func isMemberPID(byPID map[int]procStat, kin map[int]bool, number int, p procStat) bool {
	return kin[number] && number != p.pid && byPID[number].start <= p.start
}

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
			own := []familySession{{sid: pid, start: child.start}}
			claims[pid] = familyCriteria{mark: noMark, notBefore: child.start, sessions: own, ownPID: os.Getpid()}
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
