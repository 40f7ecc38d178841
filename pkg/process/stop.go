package process

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// Stop ends the child and its family, and returns how the child ended. First the child's process
// group gets the signal given by the parameter first. Once the child has ended, the rest of the
// family gets it too. Processes that are left after the grace period get SIGKILL. Stop returns when
// no process is left and the output is finished as for Done. It returns at the latest three seconds
// after SIGKILL; Exit.Err then names the processes that could not be ended. If ctx ends, the grace
// period ends, and Stop waits for a blocked output only for a bounded time.
//
// Stop may be called at any time, also after the child's own end, to end processes that it left
// behind. It may be called several times: later calls do not send the same signal again, but may
// have a shorter grace period.
func (c *Child) Stop(ctx context.Context, grace time.Duration, first syscall.Signal) Exit {
	if err := c.StopProcesses(ctx, grace, first); err != nil {
		return c.exitWith(err)
	}
	if ctxutil.AwaitDone(ctx, c.done) || ctxutil.AwaitDoneFor(c.done, 2*c.supervisor.timeouts.outputDrain) {
		return c.Exit()
	}
	return c.exitWith(errors.New("cannot pass on its last output in time"))
}

// StopProcesses ends the child and its family as Stop does, but does not wait for the output, which
// may be blocked. If it returns nil, the child's exit is known.
func (c *Child) StopProcesses(ctx context.Context, grace time.Duration, first syscall.Signal) error {
	if c.familyGone.Err() != nil {
		return nil
	}
	if err := c.endFamily(ctx, grace, first); err != nil {
		return fmt.Errorf("cannot end all of %s: %w", c.spec.Name, err)
	}
	c.markFamilyGone()
	c.supervisor.unregisterChild(c)
	return nil
}

// exitWith returns the child's exit with err added to Exit.Err.
func (c *Child) exitWith(err error) Exit {
	exit := c.Exit()
	exit.Err = errors.Join(err, exit.Err)
	return exit
}

// endFamily ends the child and its family. It returns nil when all of them have ended.
func (c *Child) endFamily(ctx context.Context, grace time.Duration, first syscall.Signal) error {
	patience, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	// While a Stop is in progress, the output pipes are read: a process that saves its work during the
	// grace period, after the child has ended, must not die of a closed pipe.
	c.activeStops.Add(1)
	defer c.activeStops.Add(-1)
	// Record the sessions before each signal: a process that the signal ends may be the only
	// connection to others.
	note := func() { c.supervisor.recordSessions([]*Child{c}, false) }
	if !ctxutil.AwaitDoneFor(c.reaped, 0) { // if the child has ended, the sweep sees the same sessions
		note()
	}
	// Send the first signal to the process group and, when the child has ended, to the rest.
	asked := c.requestEnd(first)
	if patience.Err() == nil && ctxutil.AwaitDone(patience, c.reaped) {
		polite := newFamilySweep(c.currentCriteria(), c.supervisor.scanner)
		polite.hasNoDescendants = c.supervisor.hasNoOrphans
		if first != unix.SIGKILL {
			polite.selects = asked.mustReceive
		}
		if left, err := polite.signalUntilGone(patience, first); err == nil && len(left) == 0 {
			return nil
		}
	}
	note()
	// The grace period is over: kill everything that is left.
	c.killGroup()
	end, cancelEnd := context.WithTimeout(context.Background(), c.supervisor.timeouts.killWait)
	defer cancelEnd()
	// The sweep runs even if the child has not ended yet: its descendants are killed at the same time.
	s := newFamilySweep(c.currentCriteria(), c.supervisor.scanner)
	left, err := s.signalUntilGone(end, unix.SIGKILL)
	if err := s.remainingError(left, err); err != nil {
		return err
	}
	if !ctxutil.AwaitDone(end, c.reaped) {
		return fmt.Errorf("cannot reap pid %d", c.pid)
	}
	return nil
}

// signalRequest records how Stop's first signal was sent.
type signalRequest struct {
	sentAt uint64 // time of sending, in boot ticks
	group  int    // process group that received it then; 0: none, because the child had ended
}

// mustReceive reports whether p must still get the signal. A process that started after the request
// does not get it: it is part of the reaction to it, such as the copy of the last checkpoint that a
// trap handler makes. Nor does a process that got it with the group: many programs interpret a
// second signal as impatience.
func (r signalRequest) mustReceive(p procStat) bool {
	return p.start <= r.sentAt && p.pgid != r.group
}

// requestEnd sends first to the process group, unless the child has ended or an earlier call has
// sent it. It returns how it was sent.
func (c *Child) requestEnd(first syscall.Signal) signalRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	ended := c.hasEnded()
	c.stopping = c.stopping || !ended
	if before, found := c.sentRequests[first]; found {
		return before
	}
	r := signalRequest{sentAt: bootTicks()}
	if !ended {
		r.group = c.pid
		_ = c.signalGroup(first) // the sweep reports errors
	}
	c.sentRequests[first] = r
	return r
}

// killGroup sends SIGKILL to the whole process group at once, before a process can react to the end
// of another.
func (c *Child) killGroup() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reapedAt == 0 {
		_ = c.signalGroup(unix.SIGKILL) // the sweep reports errors
	}
}
