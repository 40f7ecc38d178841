package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// unreapedForks holds the PIDs that this process has forked and not reaped: children and guards of
// all its Supervisors, helpers and commands. Any other child of this process that is in another
// session is an orphan that the kernel has assigned to it.
var unreapedForks struct {
	sync.Mutex
	pids map[int]bool
}

// recordFork records that this process has forked pid.
func recordFork(pid int) {
	unreapedForks.Lock()
	defer unreapedForks.Unlock()
	if unreapedForks.pids == nil {
		unreapedForks.pids = make(map[int]bool)
	}
	unreapedForks.pids[pid] = true
}

// recordReap records that this process has reaped pid, so that the kernel may reuse it.
func recordReap(pid int) {
	unreapedForks.Lock()
	defer unreapedForks.Unlock()
	delete(unreapedForks.pids, pid)
}

// AdoptOrphans makes this process the parent of all processes that its children leave behind, so
// that none can hide. The periodic scans report these orphans to the guard and reap those that have
// ended; EndAll kills the others. At most one Supervisor of a process may do so at a time.
func (s *Supervisor) AdoptOrphans() {
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil && os.Getpid() != 1 {
		return // a kernel before 3.4
	}
	s.adoptsOrphans.Store(true)
}

// findOrphans returns the PIDs of this process's orphans, alive or zombies.
func (s *Supervisor) findOrphans() (found []int) {
	// The kernel assigns orphans to the main thread of a process. Reading its list of children
	// takes microseconds.
	self := strconv.Itoa(os.Getpid())
	text, err := os.ReadFile("/proc/self/task/" + self + "/children")
	if err != nil { // a kernel without CONFIG_PROC_CHILDREN
		text = nil
		all, _ := s.scanner.scanProcesses() // a process that cannot be inspected cannot be ended either
		for _, p := range all {
			if p.ppid == os.Getpid() {
				text = fmt.Appendf(text, "%d ", p.pid)
			}
		}
	}
	own, _ := unix.Getsid(0) // cannot fail for this process
	for word := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			continue
		}
		unreapedForks.Lock()
		isOwn := unreapedForks.pids[pid]
		unreapedForks.Unlock()
		if isOwn {
			continue
		}
		// Another process for which a part of the daemon waits is in the daemon's session.
		if p, err := readStat(pid); err == nil && p.ppid == os.Getpid() && (p.sid != own || os.Getpid() == 1) {
			found = append(found, pid)
		}
	}
	return found
}

// hasNoOrphans reports that this process has no orphans. Then a child that has been reaped has no
// descendants: the topmost of them would be orphans of this process. Two queries must agree: the
// kernel's list may lack a process if another one is reaped while it is read.
func (s *Supervisor) hasNoOrphans() bool {
	return s.adoptsOrphans.Load() && len(s.findOrphans()) == 0 && len(s.findOrphans()) == 0
}

// orphanCriteria returns the criteria that cover these orphans, their descendants, and processes
// with this daemon's mark.
func (s *Supervisor) orphanCriteria(pids []int) familyCriteria {
	orphans := make(map[int]bool)
	for _, pid := range pids {
		orphans[pid] = true
	}
	return familyCriteria{
		mark: s.markPrefix, notBefore: s.scanner.startTime, ownPID: os.Getpid(), orphanPIDs: orphans,
	}
}

// reportOrphanSessions reports to the guard the sessions in which orphans live and no child's
// family does.
func (s *Supervisor) reportOrphanSessions(children []*Child) {
	found := make(map[int]familySession)
	if pids := s.findOrphans(); len(pids) > 0 {
		// Find the sessions of the orphans and their descendants.
		at := bootTicks()
		all, err := s.scanner.scanProcesses()
		if err != nil {
			return
		}
		started := make(map[int]uint64)
		for _, p := range all {
			started[p.pid] = p.start
		}
		alive, _ := s.orphanCriteria(pids).findMembers(all)
		for _, p := range alive {
			r, known := found[p.sid]
			if start, led := started[p.sid]; led {
				found[p.sid] = familySession{sid: p.sid, start: start}
			} else if !known || p.start < r.start {
				found[p.sid] = familySession{sid: p.sid, start: p.start, lastOwned: at}
			}
		}
	}
	// Sessions of the children's families are reported elsewhere.
	reported := make(map[int]bool)
	for _, c := range children {
		for _, r := range c.currentCriteria().sessions {
			reported[r.sid] = true
			delete(found, r.sid)
		}
	}
	// Report the difference to the previous scan.
	for sid := range s.orphanSessions {
		if _, still := found[sid]; !still && !reported[sid] {
			s.guardLink.removeSession(sid)
		}
	}
	for _, r := range found {
		s.guardLink.addSession(r)
	}
	s.orphanSessions = found
}

// killOrphans kills all orphans. Its error names those that cannot be ended.
func (s *Supervisor) killOrphans(ctx context.Context) error {
	if !s.adoptsOrphans.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeouts.killWait)
	defer cancel()
	var errs []error
	// the children of killed orphans become orphans too
	for pids := s.findOrphans(); len(pids) > 0; pids = s.findOrphans() {
		sweep := newFamilySweep(s.orphanCriteria(pids), s.scanner)
		left, err := sweep.signalUntilGone(ctx, unix.SIGKILL)
		if err := sweep.remainingError(left, err); err != nil {
			errs = append(errs, err)
			break
		}
		for _, pid := range pids {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // fails if a periodic scan has reaped it
		}
	}
	return errors.Join(errs...)
}

// reapOrphans reaps the orphans that have ended. It never reaps a child for which another part of
// the daemon waits: it reaps only zombies that were zombies at the previous scan too, at least one
// second earlier.
func (s *Supervisor) reapOrphans() {
	var all []procStat
	for _, pid := range s.findOrphans() {
		if p, err := readStat(pid); err == nil {
			all = append(all, p)
		}
	}
	var gone []int
	s.orphanZombies, gone = findUnawaited(all, os.Getpid(), s.orphanZombies)
	for _, pid := range gone {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // fails if it has been reaped elsewhere
	}
}
