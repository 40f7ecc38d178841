package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
)

// Values of Config.Death.
const (
	DeathOfWorker = "worker"
	DeathOfHead   = "head"
)

// judgeDeath returns an error if the death cannot be simulated.
func (c Config) judgeDeath() error {
	switch c.Death {
	case "":
		return nil
	case DeathOfWorker, DeathOfHead:
	default:
		return fmt.Errorf("cannot simulate the death of %q: give %s or %s", c.Death, DeathOfWorker, DeathOfHead)
	}
	if c.Nodes < 2 {
		return errors.New("cannot simulate a death with one node: nobody is left to notice it")
	}
	return nil
}

// victim is the daemon that dies as by kill -9: from its death on, its calls have no effect and get
// no answer. Its goroutines stay blocked in this process until the field buried is closed.
type victim struct {
	rank   int
	alive  context.Context // ends at its death
	die    func()          // ends alive, so that its calls block, and then its connections close, which the others may notice
	buried chan struct{}   // closed when all others have returned
}

// newVictim returns nil if no daemon should die.
func newVictim(cfg Config) *victim {
	if cfg.Death == "" {
		return nil
	}
	v := &victim{buried: make(chan struct{})}
	v.alive, v.die = context.WithCancel(context.Background())
	if cfg.Death == DeathOfWorker {
		v.rank = cfg.Nodes / 2
	}
	return v
}

// isBuried reports whether the other daemons have returned.
func (v *victim) isBuried() bool {
	select {
	case <-v.buried:
		return true
	default:
		return false
	}
}

// outlive ends the victim, waits until all other daemons have returned, and returns measurements of
// that. Then it releases the goroutines of the victim.
func (j *job) outlive(ctx context.Context, leave func()) *Death {
	j.tell("the death of the " + j.cfg.Death)
	began, before, used := j.clock.elapsed(), tally(j.counts()...), processorTime()
	j.victim.die()
	// The victim's own goroutines may or may not have ended before.
	j.gather(ctx, leave, func() bool {
		left := len(j.daemons) - len(j.ended)
		return left == 0 || left == 1 && !slices.ContainsFunc(j.ended, j.victim.is)
	})
	// Measure from the death until the last of the others has returned.
	d := &Death{Rank: j.victim.rank, Processor: processorTime() - used}
	var took []time.Duration
	for _, one := range j.others() {
		took = append(took, one.at-began)
	}
	d.Took = spreadOf(took)
	d.Calls = tally(j.counts()...).Calls - before.Calls
	d.Peak = j.clock.peak(began, began+d.Took.Max)
	d.Busy = busy(d.Processor, d.Took.Max)
	// Release the goroutines of the victim, and let them end.
	close(j.victim.buried)
	leave()
	j.hurry()
	return d
}

// is reports whether this is the end of the victim.
func (v *victim) is(one ended) bool { return one.rank == v.rank }

// others returns the ends of all daemons except the victim.
func (j *job) others() []ended { return slices.DeleteFunc(slices.Clone(j.ended), j.victim.is) }

// judged returns the failure of a job after a death, or nil if each other daemon has reported the
// loss of a peer.
func judged(others []ended) *Failure {
	want := health.OutcomeOfKind(health.PeerLost).Code
	wrong := slices.IndexFunc(others, func(one ended) bool { return one.code != want })
	if wrong < 0 {
		return nil
	}
	return &Failure{Code: others[wrong].code, Codes: codesOf(others)}
}
