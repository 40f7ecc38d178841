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

// forked holds the PIDs that this process has forked and not reaped: children and guards of all its
// Supervisors. Any other child of this process that is in another session is an orphan that the
// kernel has assigned to it.
var forked struct {
	sync.Mutex
	pids map[int]bool
}

// hasForked records that this process has forked pid.
func hasForked(pid int) {
	forked.Lock()
	defer forked.Unlock()
	if forked.pids == nil {
		forked.pids = make(map[int]bool)
	}
	forked.pids[pid] = true
}

// hasReaped records that this process has reaped pid, so that the kernel may reuse it.
func hasReaped(pid int) {
	forked.Lock()
	defer forked.Unlock()
	delete(forked.pids, pid)
}

// AdoptOrphans makes this process the parent of all processes that its children leave behind, so
// that none can hide. The periodic scans report these orphans to the guard and reap those that have
// ended; EndAll kills the others. At most one Supervisor of a process may do so at a time.
func (s *Supervisor) AdoptOrphans() {
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil && os.Getpid() != 1 {
		return // a kernel before 3.4
	}
	s.adopts.Store(true)
}

// orphans returns the PIDs of this process's orphans, alive or zombies.
func (s *Supervisor) orphans() (found []int) {
	// The kernel assigns orphans to the main thread of a process. Reading its list of children takes
	// microseconds.
	self := strconv.Itoa(os.Getpid())
	text, err := os.ReadFile("/proc/self/task/" + self + "/children")
	if err != nil { // a kernel without CONFIG_PROC_CHILDREN
		text = nil
		all, _ := s.looks.all() // a process that cannot be inspected cannot be ended either
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
		forked.Lock()
		ours := forked.pids[pid]
		forked.Unlock()
		if ours {
			continue
		}
		// A helper process for which another part of the daemon waits is in the daemon's session.
		if p, err := readStat(pid); err == nil && p.ppid == os.Getpid() && (p.sid != own || os.Getpid() == 1) {
			found = append(found, pid)
		}
	}
	return found
}

// orphaned returns the criteria that cover these orphans, their descendants, and processes with
// this daemon's mark.
func (s *Supervisor) orphaned(pids []int) claim {
	c := claim{mark: s.mark, since: s.looks.since, self: os.Getpid(), pids: make(map[int]bool)}
	for _, pid := range pids {
		c.pids[pid] = true
	}
	return c
}

// noteOrphans reports to the guard the sessions in which orphans live and no child's family does.
func (s *Supervisor) noteOrphans(children []*Child) {
	found := make(map[int]root)
	if pids := s.orphans(); len(pids) > 0 {
		// Find the sessions of the orphans and their descendants.
		at := bootTicks()
		all, err := s.looks.all()
		if err != nil {
			return
		}
		started := make(map[int]uint64)
		for _, p := range all {
			started[p.pid] = p.start
		}
		alive, _ := s.orphaned(pids).family(all)
		for _, p := range alive {
			r, known := found[p.sid]
			if start, led := started[p.sid]; led {
				found[p.sid] = root{sid: p.sid, start: start}
			} else if !known || p.start < r.start {
				found[p.sid] = root{sid: p.sid, start: p.start, gone: at}
			}
		}
	}
	// Sessions of the children's families are reported elsewhere.
	theirs := make(map[int]bool)
	for _, c := range children {
		for _, r := range c.claim().roots {
			theirs[r.sid] = true
			delete(found, r.sid)
		}
	}
	// Report the difference to the previous scan.
	for sid := range s.strays {
		if _, still := found[sid]; !still && !theirs[sid] {
			s.guard.remove(sid)
		}
	}
	for _, r := range found {
		s.guard.add(r)
	}
	s.strays = found
}

// endOrphans kills all orphans. Its error names those that cannot be ended.
func (s *Supervisor) endOrphans(ctx context.Context) error {
	if !s.adopts.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.kill)
	defer cancel()
	var errs []error
	for pids := s.orphans(); len(pids) > 0; pids = s.orphans() { // the children of killed orphans become orphans too
		sweep := newSweep(s.orphaned(pids), s.looks)
		left, err := sweep.until(ctx, unix.SIGKILL)
		if err := sweep.remains(left, err); err != nil {
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
	for _, pid := range s.orphans() {
		if p, err := readStat(pid); err == nil {
			all = append(all, p)
		}
	}
	var gone []int
	s.ended, gone = unawaited(all, os.Getpid(), s.ended)
	for _, pid := range gone {
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // fails if it has been reaped elsewhere
	}
}
