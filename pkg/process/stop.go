package process

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Stop ends the child and its family, and returns how the child ended. The child's group gets first; once the child has
// gone, so does the rest of the family; what is there after grace gets SIGKILL. It returns when nothing is left, at the
// latest three seconds after SIGKILL, with Exit.Err naming what could not be ended, and when the output is finished as
// for Done. The end of ctx is the end of grace; an output that is not taken is then waited for no longer.
//
// It may be called at any time, also after the child's own end, for what that left behind, and several times: a later
// call does not repeat a signal, and can be the more impatient.
func (c *Child) Stop(ctx context.Context, grace time.Duration, first syscall.Signal) Exit {
	if err := c.End(ctx, grace, first); err != nil {
		return c.exitWith(err)
	}
	if pause.Await(ctx, c.done) || pause.Until(c.done, 2*c.owner.limits.drain) {
		return c.Exit()
	}
	return c.exitWith(errors.New("cannot pass on its last output in time"))
}

// End ends the child and its family as Stop does, and does not wait for the output, which somebody may not be reading.
// Where it returns nil the child's exit is known.
func (c *Child) End(ctx context.Context, grace time.Duration, first syscall.Signal) error {
	if c.swept.Err() != nil {
		return nil
	}
	if err := c.endFamily(ctx, grace, first); err != nil {
		return fmt.Errorf("cannot end all of %s: %w", c.spec.Name, err)
	}
	c.sweep()
	c.owner.forget(c)
	return nil
}

func (c *Child) exitWith(err error) Exit {
	exit := c.Exit()
	exit.Err = errors.Join(err, exit.Err)
	return exit
}

// endFamily returns nil when the child and its family have ended.
func (c *Child) endFamily(ctx context.Context, grace time.Duration, first syscall.Signal) error {
	patience, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	// A process that saves its work during the grace, after the child itself has gone, must not die of a closed pipe.
	c.stops.Add(1)
	defer c.stops.Add(-1)
	// Who ends by a signal may be all that others are known by.
	note := func() { c.owner.note([]*Child{c}, false) }
	if !pause.Until(c.ended, 0) { // of a child that has ended the sweep sees as much
		note()
	}
	asked := c.ask(first)
	if patience.Err() == nil && pause.Await(patience, c.ended) {
		polite := newSweep(c.claim(), c.owner.looks)
		if first != unix.SIGKILL {
			polite.asks = asked.reaches
		}
		if left, err := polite.until(patience, first); err == nil && len(left) == 0 {
			return nil
		}
	}
	note()
	c.insist()
	end, cancelEnd := context.WithTimeout(context.Background(), c.owner.limits.kill)
	defer cancelEnd()
	// The sweep goes on while the child is still there: what it has forked does not wait for its end.
	s := newSweep(c.claim(), c.owner.looks)
	left, err := s.until(end, unix.SIGKILL)
	if err := s.remains(left, err); err != nil {
		return err
	}
	if !pause.Await(end, c.ended) {
		return fmt.Errorf("cannot reap pid %d", c.pid)
	}
	return nil
}

// request is Stop's first signal, as it was sent first.
type request struct {
	at    uint64 // boot ticks
	group int    // that got it at that time; 0: none, as the child had ended
}

// reaches reports whether p is still to get the signal. Who started after the request does not get it: it is part of the
// answer, such as a copy of the last checkpoint that a trap makes. Nor does who got it with the group: many programs
// take a second one for impatience.
func (r request) reaches(p procStat) bool {
	return p.start <= r.at && p.pgid != r.group
}

// ask sends first to the group, unless the child has ended or an earlier call did. It returns how it was sent.
func (c *Child) ask(first syscall.Signal) request {
	c.mu.Lock()
	defer c.mu.Unlock()
	ended := c.hasEnded()
	c.stopping = c.stopping || !ended
	if before, found := c.asked[first]; found {
		return before
	}
	r := request{at: bootTicks()}
	if !ended {
		r.group = c.pid
		_ = c.signalGroup(first) // the sweep tells where it can't be done
	}
	c.asked[first] = r
	return r
}

// insist sends SIGKILL to the group: all of it at once, before anybody can react to the end of another.
func (c *Child) insist() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == 0 {
		_ = c.signalGroup(unix.SIGKILL) // the sweep tells where it can't be done
	}
}
