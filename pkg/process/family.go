package process

import (
	"slices"
	"strings"
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
			if c.orphanPIDs[p.pid] || c.hasMark(p) || isInSessions(p, roots, byPID) || isMemberPID(byPID, kin, p.ppid, p) || isMemberPID(byPID, kin, p.sid, p) {
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
func sessionsOfMembers(alive []procStat, roots []familySession, byPID map[int]procStat, kin map[int]bool) []familySession {
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
