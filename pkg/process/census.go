package process

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// minScanInterval and maxScanInterval are the shortest and the longest interval between two scans.
	// The interval is short after the start of a child, because that is when the child starts others.
	minScanInterval = time.Second
	maxScanInterval = 10 * time.Second
	// scanCostDivisor bounds the cost of the scans to one part in scanCostDivisor of one core.
	scanCostDivisor = 100
)

// runSessionScans records, every few seconds until ctx ends, the sessions that the families have
// created. There is no other way to find a worker that created a session, overwrote its environment
// with a title (as setproctitle does) and lost its parent.
func (s *Supervisor) runSessionScans(ctx context.Context) {
	repeatAtIntervals(ctx, s.childStarted, s.scanSessions)
}

// repeatAtIntervals calls count again and again until ctx ends, at growing intervals. Each start of
// a child resets the interval to minScanInterval. A start can only bring the next call forward, so
// a continuous sequence of starts does not delay it. count returns the processor time that it took.
func repeatAtIntervals(ctx context.Context, started <-chan struct{}, count func() time.Duration) {
	pause, next, rested := minScanInterval, time.Now().Add(minScanInterval), time.Now()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		// Scan, then wait longer: at least the interval, and long enough to respect scanCostDivisor.
		case <-timer.C:
			took := count()
			rested = time.Now().Add(scanCostDivisor * took)
			next = time.Now().Add(max(pause, scanCostDivisor*took))
			pause = min(2*pause, maxScanInterval)
		// A child was started: bring the next scan forward, if that makes it earlier.
		case <-started:
			pause = minScanInterval
			soon := time.Now().Add(max(pause, time.Until(rested)))
			if !soon.Before(next) {
				continue
			}
			next = soon
		case <-ctx.Done():
			return
		}
		timer.Reset(time.Until(next))
	}
}

// scanSessions performs one scan and returns the processor time that it took. The elapsed time does
// not measure the cost: on a busy machine a scan may wait for a processor longer than it runs, and
// the next scan would be minutes late.
func (s *Supervisor) scanSessions() time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	children := s.activeChildren()
	if len(children) > 0 {
		s.recordSessions(children, true)
	}
	if s.adoptsOrphans.Load() {
		s.reportOrphanSessions(children)
		s.reapOrphans()
	}
	return threadTime() - began
}

// threadTime returns the processor time that the calling thread has used.
func threadTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// findUnawaited returns the zombie children of parent, and the PIDs of those that are in before
// too, that is, were zombies at the previous scan. No goroutine waits for the latter: a part of the
// daemon that starts a child waits for it continuously, and scans are at least one second apart.
func findUnawaited(
	all []procStat, parent int, before map[processID]bool,
) (ended map[processID]bool, unawaited []int) {
	ended = make(map[processID]bool)
	for _, p := range all {
		if id := (processID{p.pid, p.start}); p.dead && p.ppid == parent {
			ended[id] = true
			if before[id] {
				unawaited = append(unawaited, p.pid)
			}
		}
	}
	return ended, unawaited
}

// recordSessions records the sessions of each child's family. If marks is set, environments are
// read as well. If not all processes can be seen, the recorded sessions stay as they are.
func (s *Supervisor) recordSessions(children []*Child, marks bool) {
	at := bootTicks()
	all, err := s.scanner.scanProcesses()
	if err != nil {
		return
	}
	for _, c := range children {
		_, sessions := c.findFamily(all, marks)
		c.updateSessions(sessions, at)
	}
}

// updateSessions replaces the recorded sessions of the family by sessions, in which it lived at the
// time at (in boot ticks), and reports the changes to the guard.
func (c *Child) updateSessions(sessions []familySession, at uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.familyGone.Err() != nil {
		return
	}
	before := c.knownSessions
	c.knownSessions = make(map[int]familySession)
	for _, r := range sessions {
		r.lastOwned = at
		if r.sid != c.pid {
			c.knownSessions[r.sid] = r
			c.supervisor.guardLink.addSession(r)
		} else if c.reapedAt != 0 {
			c.reapedAt = at
			c.supervisor.guardLink.addSession(r)
		}
	}
	for sid := range before {
		if _, still := c.knownSessions[sid]; !still {
			c.supervisor.guardLink.removeSession(sid)
		}
	}
}
