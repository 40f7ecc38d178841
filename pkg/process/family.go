package process

import (
	"slices"
	"strings"
)

// root is a session that belongs to us.
type root struct {
	sid   int
	start uint64 // when its leader started
	gone  uint64 // when it was last known to be ours, if its leader has ended; 0: it is ours now
}

// claim says by what signs a family is known.
type claim struct {
	// mark is a child's mark, or, where it ends in a dot, what all marks of one daemon begin with.
	mark  string
	since uint64 // nothing that started before this belongs
	roots []root
	pids  map[int]bool // of orphans that belong
	self  int          // never belongs
}

// family returns those of all who belong and live, and the sessions that are ours by them. It looks at nothing but its
// arguments.
func (c claim) family(all []procStat) (alive []procStat, sessions []root) {
	byPID := make(map[int]procStat, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	roots := slices.DeleteFunc(slices.Clone(c.roots), func(r root) bool { return r.recycled(byPID) })
	kin := make(map[int]bool)
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if kin[p.pid] || !c.eligible(p) {
				continue
			}
			if c.pids[p.pid] || c.marked(p) || isMember(p, roots, byPID) || isKin(byPID, kin, p.ppid, p) || isKin(byPID, kin, p.sid, p) {
				kin[p.pid], grown = true, true
			}
		}
	}
	for _, p := range all {
		if kin[p.pid] && !p.dead {
			alive = append(alive, p)
		}
	}
	return alive, sessionsOf(alive, roots, byPID, kin)
}

// sessionsOf returns the sessions in which the family lives and that it began: those of roots, and those whose leader is
// one of them.
func sessionsOf(alive []procStat, roots []root, byPID map[int]procStat, kin map[int]bool) []root {
	var out []root
	for _, p := range alive {
		has := func(r root) bool { return r.sid == p.sid }
		if slices.ContainsFunc(out, has) {
			continue
		}
		if i := slices.IndexFunc(roots, has); i >= 0 {
			out = append(out, roots[i])
		} else if leader := byPID[p.sid]; kin[p.sid] && leader.sid == p.sid {
			out = append(out, root{sid: p.sid, start: leader.start})
		}
	}
	return out
}

// recycled reports whether the session's number has another owner now. The kernel keeps a number as long as any
// process has it as its session, so the whole session has ended then.
func (r root) recycled(byPID map[int]procStat) bool {
	leader, found := byPID[r.sid]
	return found && leader.start != r.start
}

func (c claim) eligible(p procStat) bool {
	return p.pid != c.self && p.pid > 1 && !p.kernel && p.start >= c.since
}

func (c claim) marked(p procStat) bool {
	return slices.ContainsFunc(p.marks, func(mark string) bool {
		if strings.HasSuffix(c.mark, ".") {
			return strings.HasPrefix(mark, c.mark)
		}
		return mark == c.mark
	})
}

// isMember reports whether p is in one of the sessions. Where the leader has gone, whoever started after that may be in
// a later session that was given the same number.
func isMember(p procStat, roots []root, byPID map[int]procStat) bool {
	return slices.ContainsFunc(roots, func(r root) bool {
		_, led := byPID[r.sid]
		return p.sid == r.sid && p.start >= r.start && (led || r.gone == 0 || p.start <= r.gone)
	})
}

// isKin reports whether the process number, which is p's parent or session leader, is of the family. A process that
// started after p can be neither: it was given the number of one that is gone.
func isKin(byPID map[int]procStat, kin map[int]bool, number int, p procStat) bool {
	return kin[number] && number != p.pid && byPID[number].start <= p.start
}
