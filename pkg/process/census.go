package process

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// firstCensus and longestCensus are the times between two: short after a child's start, when it starts others.
	firstCensus   = time.Second
	longestCensus = 10 * time.Second
	// censusShare bounds what they cost, to one part of a core in so many.
	censusShare = 100
)

// census notes, every few seconds until ctx ends, the sessions that the families began. A worker that began a session,
// wrote a title over its environment (setproctitle does) and lost its parent is known by nothing else.
func (s *Supervisor) census(ctx context.Context) { repeat(ctx, s.started, s.count) }

// repeat counts again and again until ctx ends, ever more slowly from the last start on. Starts that come all the time
// put no census off. count returns what it has cost.
func repeat(ctx context.Context, started <-chan struct{}, count func() time.Duration) {
	pause, next, rested := firstCensus, time.Now().Add(firstCensus), time.Now()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			took := count()
			rested = time.Now().Add(censusShare * took)
			next = later(time.Now().Add(pause), rested)
			pause = min(2*pause, longestCensus)
		case <-started:
			pause = firstCensus
			soon := later(time.Now().Add(pause), rested)
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

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// count does one census, and returns the processor time that it took. The time that passes is no measure of the cost:
// on a busy machine a census may wait for a processor longer than it runs, and the next one would come minutes later.
func (s *Supervisor) count() time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	children := s.present()
	if len(children) > 0 {
		s.note(children, true)
	}
	if s.adopts.Load() {
		s.noteOrphans(children)
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

// unawaited returns the children of parent that have ended, and the numbers of those that before has too. Those are
// nobody's: who starts a child here waits for it all the time, and censuses are a second apart.
func unawaited(all []procStat, parent int, before map[processID]bool) (ended map[processID]bool, nobodys []int) {
	ended = make(map[processID]bool)
	for _, p := range all {
		if id := (processID{p.pid, p.start}); p.dead && p.ppid == parent {
			ended[id] = true
			if before[id] {
				nobodys = append(nobodys, p.pid)
			}
		}
	}
	return ended, nobodys
}

// note notes the families of children, as family finds them. Where not all processes can be seen, what is known stays so.
func (s *Supervisor) note(children []*Child, marks bool) {
	at := bootTicks()
	all, err := s.looks.all()
	if err != nil {
		return
	}
	for _, c := range children {
		_, sessions := c.family(all, marks)
		c.note(sessions, at)
	}
}

// note remembers the sessions in which the family lived at that time, and tells the guard what is new.
func (c *Child) note(sessions []root, at uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.swept.Err() != nil {
		return
	}
	before := c.known
	c.known = make(map[int]root)
	for _, r := range sessions {
		r.gone = at
		if r.sid != c.pid {
			c.known[r.sid] = r
			c.owner.guard.add(r)
		} else if c.gone != 0 {
			c.gone = at
			c.owner.guard.add(r)
		}
	}
	for sid := range before {
		if _, still := c.known[sid]; !still {
			c.owner.guard.remove(sid)
		}
	}
}
