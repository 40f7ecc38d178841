package simulate

import (
	"context"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
)

// Values of Config.Death.
const (
	WorkerDies = "worker"
	HeadDies   = "head"
)

// faultTarget is the daemon that dies as by kill -9: from its death on, its calls have no effect
// and get no answer. Its goroutines stay blocked in this process until the field buried is closed.
type faultTarget struct {
	node  int
	alive context.Context // ends at its death
	// ends alive, so that its calls block, and then its connections close, which the others may notice
	kill     func()
	released chan struct{} // closed when all others have returned
}

// newFaultTarget returns nil if no daemon should die.
func newFaultTarget(cfg Config) *faultTarget {
	if cfg.Death == "" {
		return nil
	}
	v := &faultTarget{released: make(chan struct{})}
	v.alive, v.kill = context.WithCancel(context.Background())
	if cfg.Death == WorkerDies {
		v.node = cfg.Nodes / 2
	}
	return v
}

// isReleased reports whether the other daemons have returned.
func (v *faultTarget) isReleased() bool {
	select {
	case <-v.released:
		return true
	default:
		return false
	}
}

// killAndMeasure ends the victim, waits until all other daemons have returned, and returns
// measurements of that. Then it releases the goroutines of the victim.
func (j *simulatedJob) killAndMeasure(ctx context.Context, leave func()) *DeathResult {
	j.reportProgress("the death of the " + j.cfg.Death)
	began, before, used := j.clock.sinceStart(), sumCounts(j.countCalls()...), processorTime()
	j.faultTarget.kill()
	// The victim's own goroutines may or may not have ended before.
	j.awaitEnds(ctx, leave, func() bool {
		left := len(j.daemons) - len(j.endedDaemons)
		return left == 0 || left == 1 && !slices.ContainsFunc(j.endedDaemons, j.faultTarget.isEndOfTarget)
	})
	// Measure from the death until the last of the others has returned.
	d := &DeathResult{Rank: j.faultTarget.node, Processor: processorTime() - used}
	var took []time.Duration
	for _, one := range j.survivors() {
		took = append(took, one.at-began)
	}
	d.Took = percentilesOf(took)
	d.Calls = sumCounts(j.countCalls()...).Calls - before.Calls
	d.Peak = j.clock.peakRate(began, began+d.Took.Max)
	d.Busy = busyFraction(d.Processor, d.Took.Max)
	// Release the goroutines of the victim, and let them end.
	close(j.faultTarget.released)
	leave()
	j.interruptDaemons()
	return d
}

// isEndOfTarget reports whether this is the end of the victim.
func (v *faultTarget) isEndOfTarget(one daemonEnd) bool { return one.node == v.node }

// survivors returns the ends of all daemons except the victim.
func (j *simulatedJob) survivors() []daemonEnd {
	return slices.DeleteFunc(slices.Clone(j.endedDaemons), j.faultTarget.isEndOfTarget)
}

// checkSurvivors returns the failure of a job after a death, or nil if each other daemon has
// reported the loss of a peer.
func checkSurvivors(others []daemonEnd) *Failure {
	want := health.OutcomeOfKind(health.PeerLost).Code
	wrong := slices.IndexFunc(others, func(one daemonEnd) bool { return one.code != want })
	if wrong < 0 {
		return nil
	}
	return &Failure{Code: others[wrong].code, Codes: countExitCodes(others)}
}
