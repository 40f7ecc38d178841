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

// forked holds the children that this process has forked and not reaped, of all its Supervisors,
// and their guards. The other children in a session other than its own are orphans that the kernel
// has given to it.
var forked struct {
	sync.Mutex
	pids map[int]bool
}

// hasForked notes that this process has forked pid.
func hasForked(pid int) {
	forked.Lock()
	defer forked.Unlock()
	if forked.pids == nil {
		forked.pids = make(map[int]bool)
	}
	forked.pids[pid] = true
}

// hasReaped notes that this process has reaped pid, whose number may become another process's.
func hasReaped(pid int) {
	forked.Lock()
	defer forked.Unlock()
	delete(forked.pids, pid)
}

// AdoptOrphans makes this process the parent of all that its children leave behind, however it has
// hidden: the census tells the guard of these orphans, EndAll ends them, and those that end earlier
// are reaped. One Supervisor of a process may do so at a time.
func (s *Supervisor) AdoptOrphans() {
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil && os.Getpid() != 1 {
		return // a kernel before 3.4
	}
	s.adopts.Store(true)
}

// orphans returns the pids of this process's orphans, dead or alive.
func (s *Supervisor) orphans() (found []int) {
	// The kernel gives orphans to the first thread. The list is read in microseconds.
	self := strconv.Itoa(os.Getpid())
	text, err := os.ReadFile("/proc/self/task/" + self + "/children")
	if err != nil { // a kernel without CONFIG_PROC_CHILDREN
		text = nil
		all, _ := s.looks.all() // a process that cannot be looked at cannot be ended either
		for _, p := range all {
			if p.ppid == os.Getpid() {
				text = fmt.Appendf(text, "%d ", p.pid)
			}
		}
	}
	own, _ := unix.Getsid(0) // it does not fail for this process
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
		// A helper of this process, which another part waits for, stays in its session.
		if p, err := readStat(pid); err == nil && p.ppid == os.Getpid() && (p.sid != own || os.Getpid() == 1) {
			found = append(found, pid)
		}
	}
	return found
}

// orphaned returns the claim to these orphans, what descends from them, and what has a mark of ours.
func (s *Supervisor) orphaned(pids []int) claim {
	c := claim{mark: s.mark, since: s.looks.since, self: os.Getpid(), pids: make(map[int]bool)}
	for _, pid := range pids {
		c.pids[pid] = true
	}
	return c
}

// noteOrphans tells the guard in which sessions orphans live that no child's family lives in.
func (s *Supervisor) noteOrphans(children []*Child) {
	found := make(map[int]root)
	if pids := s.orphans(); len(pids) > 0 {
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
	theirs := make(map[int]bool)
	for _, c := range children {
		for _, r := range c.claim().roots {
			theirs[r.sid] = true
			delete(found, r.sid)
		}
	}
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

// endOrphans kills all orphans, and returns an error that names those that it cannot end.
func (s *Supervisor) endOrphans(ctx context.Context) error {
	if !s.adopts.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.kill)
	defer cancel()
	var errs []error
	for pids := s.orphans(); len(pids) > 0; pids = s.orphans() { // the children of those that end are orphans, too
		sweep := newSweep(s.orphaned(pids), s.looks)
		left, err := sweep.until(ctx, unix.SIGKILL)
		if err := sweep.remains(left, err); err != nil {
			errs = append(errs, err)
			break
		}
		for _, pid := range pids {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // it fails if a census has reaped it
		}
	}
	return errors.Join(errs...)
}

// reapOrphans reaps the orphans that have ended. It never takes the end of a child that somebody
// waits for: what it reaps is dead at two censuses, which are at least a second apart.
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
		_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // it fails if somebody has waited
	}
}
