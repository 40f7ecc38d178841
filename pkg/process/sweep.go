package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pause"
)

const (
	firstPause = 4 * time.Millisecond
	longPause  = 100 * time.Millisecond
	// longRest bounds the pause after a slow look. Such a look has waited, for the machine or for somebody's memory,
	// and has not kept a core busy.
	longRest = 2 * longPause
)

// sweep sends a signal to a family until none of it is left. It is for one goroutine.
type sweep struct {
	claim claim
	looks *looks
	told  map[int]uint64        // who has had the signal: pid to start time
	asks  func(p procStat) bool // who is to get it; nil: all
	deny  map[int]error         // who could not be signalled
}

func newSweep(c claim, l *looks) *sweep {
	return &sweep{
		claim: c,
		looks: l,
		told:  make(map[int]uint64),
		deny:  make(map[int]error),
	}
}

// until signals the family again and again, to two looks in a row that find nobody or the end of ctx. KILL is sent in
// each look, another signal once to each process. It returns who is left, and an error only where it could not look.
func (s *sweep) until(ctx context.Context, sig syscall.Signal) ([]procStat, error) {
	gap, empty := firstPause, 0
	for {
		began := time.Now()
		left, err := s.pass(sig)
		if err != nil || len(left) > 0 {
			empty = 0
		} else if empty++; empty == 2 {
			return nil, nil
		}
		if !pause.For(ctx, rest(gap, time.Since(began), empty)) {
			return s.pass(sig) // whoever got the signal in the last look has had time to end
		}
		if empty == 0 {
			gap = min(2*gap, longPause)
		}
	}
}

// rest is the pause before the next look. took is how long the last one took, and empty how many in a row found nobody.
// On a node with thousands of processes a look costs tens of milliseconds, so the pause grows with it and leaves most of
// a core to others; not before the very last look, for which the whole job may be waiting.
func rest(pause, took time.Duration, empty int) time.Duration {
	if empty > 0 {
		return pause
	}
	return max(pause, min(4*took, longRest))
}

// pass looks once and signals whom it finds. Reading environments may take long: it is done after those who are known
// otherwise have had their signal, and only for the rest.
func (s *sweep) pass(sig syscall.Signal) ([]procStat, error) {
	all, err := s.looks.all()
	known, sessions := s.claim.family(all)
	s.signal(known, sig)
	if s.readMarks(all, known) {
		known, sessions = s.claim.family(all)
		s.signal(known, sig)
	}
	for _, r := range sessions {
		// Whoever is forked into these before the next look belongs, even if all that are there now have gone by then.
		r.gone = 0
		s.claim.roots = append(slices.DeleteFunc(s.claim.roots, func(have root) bool { return have.sid == r.sid }), r)
	}
	return known, err
}

// readMarks fills in the marks of all who may belong and are not in known. It reports whether any has one of ours.
func (s *sweep) readMarks(all, known []procStat) bool {
	have := make(map[int]bool, len(known))
	for _, p := range known {
		have[p.pid] = true
	}
	found := false
	for i, p := range all {
		if have[p.pid] || p.dead || !s.claim.eligible(p) {
			continue
		}
		all[i].marks = p.read()
		found = found || s.claim.marked(all[i])
	}
	return found
}

func (s *sweep) signal(whom []procStat, sig syscall.Signal) {
	for _, p := range whom {
		if sig != unix.SIGKILL && s.told[p.pid] == p.start || s.asks != nil && !s.asks(p) {
			continue
		}
		s.told[p.pid] = p.start
		delete(s.deny, p.pid)
		if err := signalExactly(p, sig); err != nil {
			s.deny[p.pid] = err
		}
	}
}

// signalExactly signals the process that p is, and not another that has its number by now. One that is gone is no error.
func signalExactly(p procStat, sig syscall.Signal) error {
	// With the pidfd open first, the start time read next is that of the process the pidfd stands for. Without (an older
	// kernel, a container's seccomp filter) some microseconds remain in which the number could change hands.
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
	if err == nil && wakes(sig) {
		err = process.Signal(unix.SIGCONT)
	}
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// wakes reports whether sig asks for an end: one that is stopped could not follow, so it gets CONT with it.
func wakes(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGKILL:
		return true
	}
	return false
}

// remains returns an error that names who is left, nil where nobody is.
func (s *sweep) remains(left []procStat, lookErr error) error {
	if lookErr != nil {
		return fmt.Errorf("cannot tell whether all have ended: %v", lookErr)
	}
	var errs []error
	for _, p := range left {
		if err := s.deny[p.pid]; err != nil {
			errs = append(errs, fmt.Errorf("cannot signal %v: %v", p, err))
			continue
		}
		errs = append(errs, fmt.Errorf("cannot end %v: it is there in spite of SIGKILL", p))
	}
	return errors.Join(errs...)
}
