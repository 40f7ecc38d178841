package process

import (
	"os"
	"slices"
	"strings"
	"time"
)

type familySession struct {
	sid   int
	start uint64 // start time of the session leader
	// when the child, which led it, was reaped, after which the kernel may reuse the ID; 0: not yet
	lastOwned uint64
}

type familyCriteria struct {
	// mark is a child's mark or, if it ends in a dot, the common prefix of all marks of one daemon.
	mark       string
	notBefore  uint64 // processes that started earlier are not members
	sessions   []familySession
	orphanPIDs []int // orphans that are members
	ownPID     int   // PID of the calling process, never a member
	daemonPID  int   // PID of the daemon, never a member, if another process calls
}

// findMembers returns the living members among all processes. It is a pure function of its arguments.
func (c familyCriteria) findMembers(all []procStat) (alive []procStat) {
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
			isOrphan := slices.Contains(c.orphanPIDs, p.pid)
			if descends || isOrphan || c.hasMark(p) || isInSessions(p, roots, byPID) {
				kin[p.pid], grown = true, true
			}
		}
	}
	for _, p := range all {
		if kin[p.pid] && !p.dead {
			alive = append(alive, p)
		}
	}
	return alive
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
	Start         uint64        // ticks since boot; with PID, the identity of the process
	CPUTime       time.Duration // processor time so far
	ReapedCPUTime time.Duration // processor time of its children that it has reaped
}

// FamilyScanner finds the families of a daemon's children for code that only observes them, inside
// or outside the daemon. It reads no environments, because that may hang. It must be used by one
// goroutine only.
type FamilyScanner struct{ scanner *procScanner }

// NewFamilyScanner returns a [FamilyScanner] that has not scanned yet.
func NewFamilyScanner() *FamilyScanner { return &FamilyScanner{scanner: newProcScanner(0)} }

// ScanFamilies returns the family of each process in children, which a daemon has started as its
// children, by one scan of /proc. Children that have ended have no family. An error means that some
// processes could not be inspected.
func (o *FamilyScanner) ScanFamilies(children []int) (map[int][]FamilyMember, error) {
	all, err := o.scanner.scanProcesses()
	for i, p := range all {
		all[i].marks = marksOf(nil, readMarkLimit(p.pid))
	}
	families := make(map[int][]FamilyMember)
	for _, child := range all {
		if !slices.Contains(children, child.pid) {
			continue
		}
		criteria := familyCriteria{
			mark: strings.Join(child.marks, ""), notBefore: child.start, ownPID: os.Getpid(),
			daemonPID: child.ppid, // which has a child's limit while it forks
			sessions:  []familySession{{sid: child.pid, start: child.start}},
		}
		for _, p := range criteria.findMembers(all) {
			families[child.pid] = append(families[child.pid], p.asMember())
		}
	}
	return families, err
}

func (p procStat) asMember() FamilyMember {
	const tick = time.Second / ticksPerSecond
	return FamilyMember{
		PID: p.pid, Parent: p.ppid, Start: p.start,
		CPUTime: time.Duration(p.cpuTicks) * tick, ReapedCPUTime: time.Duration(p.reapedCPUTicks) * tick,
	}
}
