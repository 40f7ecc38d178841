package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// unreapedForks holds the PIDs that this process has forked and not reaped: children and guards of
// all its Supervisors, helpers and commands. Any other child of this process that is in another
// session is an orphan that the kernel has assigned to it.
var unreapedForks sync.Map

func recordFork(pid int) { unreapedForks.Store(pid, true) }

// recordReap records that this process has reaped pid, so that the kernel may reuse it.
func recordReap(pid int) { unreapedForks.Delete(pid) }

// AdoptOrphans makes this process the parent of all processes that its children leave behind, so
// that none can hide. It reaps those that have ended, and EndAll kills the others. At most one
// Supervisor of a process may do so at a time.
func (s *Supervisor) AdoptOrphans() {
	if unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != nil && os.Getpid() != 1 {
		return // a kernel before 3.4
	}
	if !s.adoptsOrphans.Swap(true) {
		s.reapLoop.Go(s.reapUntilEnd)
	}
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
		if _, isOwn := unreapedForks.Load(pid); isOwn {
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
	return familyCriteria{
		mark: s.markPrefix, notBefore: s.scanner.startTime, ownPID: os.Getpid(), orphanPIDs: pids,
	}
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
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // fails if it has been reaped meanwhile
		}
	}
	return errors.Join(errs...)
}

// reapInterval is the time between two searches for orphans that have ended.
const reapInterval = 5 * time.Second

// reapUntilEnd reaps the orphans that have ended, until the Supervisor ends. It never reaps a child
// for which another part of the daemon waits: it reaps only zombies that were zombies one interval
// before, too.
func (s *Supervisor) reapUntilEnd() {
	var before map[processID]bool
	for ctxutil.SleepContext(s.ctx, reapInterval) {
		ended := make(map[processID]bool)
		for _, pid := range s.findOrphans() {
			p, err := readStat(pid)
			if err != nil || !p.dead {
				continue
			}
			id := processID{pid, p.start}
			ended[id] = true
			if before[id] {
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // fails if it has been reaped elsewhere
			}
		}
		before = ended
	}
}
