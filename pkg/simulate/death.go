package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
)

// Whose daemon dies.
const (
	DeathOfWorker = "worker"
	DeathOfHead   = "head"
)

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

// victim is the daemon that dies as by kill -9: from then on nothing that it
// asks for is done, or answered. Its goroutines live on in this process, and
// are ended when it is buried.
type victim struct {
	rank  int
	alive context.Context // ends at its death
	// first the share ends for it, and then the connections, by which the others may hear of it
	die    func()
	buried chan struct{} // closed when all others have returned
}

// newVictim returns nil where nobody is to die.
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

// isBuried tells whether the others have returned.
func (v *victim) isBuried() bool {
	select {
	case <-v.buried:
		return true
	default:
		return false
	}
}

// outlive kills the victim, waits until all others have returned, and tells how
// that was. Then it buries the victim.
func (j *job) outlive(ctx context.Context, leave func()) *Death {
	j.tell("the death of the " + j.cfg.Death)
	began, before, used := j.clock.elapsed(), tally(j.counts()...), processorTime()
	j.victim.die()
	j.gather(ctx, leave, func() bool {
		left := len(j.daemons) - len(j.ended)
		return left == 0 || left == 1 && !slices.ContainsFunc(j.ended, j.victim.is)
	})
	d := &Death{Rank: j.victim.rank, Processor: processorTime() - used}
	var took []time.Duration
	for _, one := range j.others() {
		took = append(took, one.at-began)
	}
	d.Took = spreadOf(took)
	d.Calls = tally(j.counts()...).Calls - before.Calls
	d.Peak = j.clock.peak(began, began+d.Took.Max)
	d.Busy = busy(d.Processor, d.Took.Max)
	close(j.victim.buried)
	leave()
	j.hurry()
	return d
}

func (v *victim) is(one ended) bool { return one.rank == v.rank }

// others are the ends of all but the victim.
func (j *job) others() []ended { return slices.DeleteFunc(slices.Clone(j.ended), j.victim.is) }

// judged returns what is wrong with the end after a death: nil where each other
// daemon has told that a peer was lost.
func judged(others []ended) *Failure {
	want := health.OutcomeOfKind(health.PeerLost).Code
	wrong := slices.IndexFunc(others, func(one ended) bool { return one.code != want })
	if wrong < 0 {
		return nil
	}
	return &Failure{Code: others[wrong].code, Codes: codesOf(others)}
}
