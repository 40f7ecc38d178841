package simulate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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
	rank    int
	network interface{ Vanish() } // nil: it has no lifelines
	died    chan struct{}         // closed at its death
	buried  chan struct{}         // closed when all others have returned
}

// die is its death: first the share, then the connections, by which the others
// may hear of it.
func (v *victim) die() {
	close(v.died)
	if v.network != nil {
		v.network.Vanish()
	}
}

// newVictim returns nil where nobody is to die.
func newVictim(cfg Config) *victim {
	if cfg.Death == "" {
		return nil
	}
	v := &victim{died: make(chan struct{}), buried: make(chan struct{})}
	if cfg.Death == DeathOfWorker {
		v.rank = cfg.Nodes / 2
	}
	return v
}

// isDead tells whether it has died.
func (v *victim) isDead() bool { return isClosed(v.died) }

// isBuried tells whether the others have returned.
func (v *victim) isBuried() bool { return isClosed(v.buried) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// outlive kills the victim, waits until all others have returned, and tells how
// that was. Then it buries the victim.
func (j *job) outlive(ctx context.Context, leave func()) *Death {
	j.tell("the death of the " + j.cfg.Death)
	began, before, used := j.elapsed(), j.counter.tally(j.counter.all()...), processorTime()
	j.victim.die()
	j.gather(ctx, leave, func() bool {
		left := len(j.daemons) - j.ended
		return left == 0 || left == 1 && j.endedAt[j.victim.rank] == 0
	})
	d := &Death{Rank: j.victim.rank, Processor: processorTime() - used}
	var took []time.Duration
	for rank, at := range j.endedAt {
		if rank != j.victim.rank {
			took = append(took, at-began)
		}
	}
	d.Took = spreadOf(took)
	d.Calls = j.counter.tally(j.counter.all()...).Calls - before.Calls
	d.Peak = j.counter.peak(began, began+d.Took.Max)
	d.Busy = d.Processor.Seconds() / d.Took.Max.Seconds() / float64(runtime.GOMAXPROCS(0))
	close(j.victim.buried)
	leave()
	j.hurry()
	return d
}

// judged returns what is wrong with the end after a death: nil where each other
// daemon has told that a peer was lost.
func (j *job) judged(d *Death) *Failure {
	want := health.OutcomeOf(health.PeerLost).Code
	codes := make(map[int]int)
	var wrong *Failure
	for rank, code := range j.codes {
		if rank == d.Rank {
			continue
		}
		codes[code]++
		if code != want && wrong == nil {
			wrong = &Failure{Code: code, Codes: codes}
		}
	}
	return wrong
}
