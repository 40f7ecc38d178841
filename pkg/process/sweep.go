package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

const (
	// Shortest and longest pause between two scans of a sweep.
	minSweepPause = 4 * time.Millisecond
	maxSweepPause = 100 * time.Millisecond
	// innerGuardGrace is how long a sweep leaves the guard of a daemon in the family alone. A guard whose
	// daemon has died removes the daemon's directories and ends by itself.
	innerGuardGrace = 2 * time.Second
)

// familySweep sends a signal to a family until no member is left. It must be used by one goroutine
// only.
type familySweep struct {
	criteria  familyCriteria
	scanner   *procScanner
	signalled map[int]uint64        // processes that have received the signal: PID to start time
	selects   func(p procStat) bool // selects the processes that get the signal; nil: all
	// reports that no descendant of the family's child is left; nil: unknown
	hasNoDescendants func() bool
	failures         map[int]error // processes that could not be signalled, by PID
	began            time.Time
}

func newFamilySweep(c familyCriteria, l *procScanner) *familySweep {
	return &familySweep{
		criteria:  c,
		scanner:   l,
		signalled: make(map[int]uint64),
		failures:  make(map[int]error),
		began:     time.Now(),
	}
}

// signalUntilGone scans and signals the family repeatedly, until two scans in a row find no member,
// or one if no descendant of the child is left, or ctx ends. SIGKILL is sent after each scan, other
// signals once to each process. It returns the remaining members, and an error if processes could
// not be inspected.
func (s *familySweep) signalUntilGone(ctx context.Context, sig syscall.Signal) ([]procStat, error) {
	gap, empty := minSweepPause, 0
	for {
		began := time.Now()
		left, err := s.scanAndSignal(sig)
		if err != nil || len(left) > 0 {
			empty = 0
		} else if empty++; empty == 2 || s.hasNoDescendants != nil && s.hasNoDescendants() {
			return nil, nil
		}
		pause := gap
		if empty == 0 { // the whole job may be waiting for the very last scan
			gap = min(2*gap, maxSweepPause)
			// With thousands of processes a scan takes tens of milliseconds: leave most of a core to others.
			pause = max(pause, min(4*time.Since(began), 2*maxSweepPause))
		}
		if !ctxutil.SleepContext(ctx, pause) {
			return s.scanAndSignal(sig) // signalled processes have had time to end
		}
	}
}

// scanAndSignal scans once and signals the members it finds. Reading environments may take long:
// that is done only for the other processes, and after the known members have been signalled.
func (s *familySweep) scanAndSignal(sig syscall.Signal) ([]procStat, error) {
	all, err := s.scanner.scanProcesses()
	known := s.criteria.findMembers(all)
	s.signalAll(known, sig)
	if s.readUnknownMarks(all, known) {
		known = s.criteria.findMembers(all)
		s.signalAll(known, sig)
	}
	return known, err
}

// readUnknownMarks reads the environments of all eligible processes that are not in known. It
// reports whether one of them has the family's mark.
func (s *familySweep) readUnknownMarks(all, known []procStat) bool {
	have := make(map[int]bool, len(known))
	for _, p := range known {
		have[p.pid] = true
	}
	found := false
	for i, p := range all {
		if have[p.pid] || p.dead || !s.criteria.isEligible(p) {
			continue
		}
		all[i].marks = p.readMarks()
		found = found || s.criteria.hasMark(all[i])
	}
	return found
}

// signalAll sends sig to processes, except to those that have received it or are excluded by
// [familySweep.selects], and to guards that have not had their time yet.
func (s *familySweep) signalAll(whom []procStat, sig syscall.Signal) {
	for _, p := range whom {
		if sig != unix.SIGKILL && s.signalled[p.pid] == p.start || s.selects != nil && !s.selects(p) {
			continue
		}
		if sig == unix.SIGKILL && time.Since(s.began) < innerGuardGrace && isGuard(p) {
			continue
		}
		s.signalled[p.pid] = p.start
		delete(s.failures, p.pid)
		if err := signalProcess(p, sig); err != nil {
			s.failures[p.pid] = err
		}
	}
}

// isGuard reports whether p is a guard, perhaps one whose code does not run yet.
func isGuard(p procStat) bool {
	if p.name != filepath.Base(OwnBinary) {
		return p.name == guardName
	}
	argv := commandLineInTime(p.pid)
	return len(argv) > 0 && argv[0] == guardName
}

// signalProcess signals the process p, but not another process that has its PID by now. It returns
// nil if p has ended.
func signalProcess(p procStat, sig syscall.Signal) error {
	// os.FindProcess opens a pidfd first, so the start time read next is that of the pidfd's
	// process. Without pidfds (an older kernel, a container's seccomp filter) a few microseconds
	// remain in which the PID could be reused.
	process, err := os.FindProcess(p.pid)
	if err != nil {
		return err
	}
	defer func() { _ = process.Release() }()
	now, err := readStat(p.pid)
	if errors.Is(err, os.ErrNotExist) || err == nil && now.start != p.start {
		return nil
	}
	if err != nil {
		return err
	}
	err = process.Signal(sig)
	if err == nil && isTermination(sig) {
		err = process.Signal(unix.SIGCONT)
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// isTermination reports whether sig is a termination signal. A stopped process could not act on it,
// so SIGCONT is sent with it.
func isTermination(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGKILL:
		return true
	}
	return false
}

// remainingError returns an error that names the remaining processes; nil if there are none.
func (s *familySweep) remainingError(left []procStat, lookErr error) error {
	if lookErr != nil {
		return fmt.Errorf("cannot determine whether all have ended: %v", lookErr)
	}
	var errs []error
	for _, p := range left {
		if err := s.failures[p.pid]; err != nil {
			errs = append(errs, fmt.Errorf("cannot signal %v: %v", p, err))
			continue
		}
		errs = append(errs, fmt.Errorf("cannot end %v: still alive after SIGKILL", p))
	}
	return errors.Join(errs...)
}
