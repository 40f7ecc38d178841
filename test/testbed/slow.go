package testbed

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"
)

// slowPeriod is how often a slow node's processes get their turn.
const slowPeriod = 100 * time.Millisecond

// SlowNode lets the job's processes on node i run for only that part of the time, between 0 and 1,
// by stopping them in between. It returns at once, with what undoes it, which must be called, and
// ends when ctx does. No other fault that stops processes may be there meanwhile.
func (b *Bed) SlowNode(ctx context.Context, i int, part float64) (heal func() error) {
	b.logf("%s: slowed down to %.0f %%", b.Node(i), 100*part)
	ctx, cancel := context.WithCancel(ctx)
	var err error
	var slowing sync.WaitGroup
	slowing.Go(func() {
		runs := time.Duration(part * float64(slowPeriod))
		for err == nil && ctx.Err() == nil {
			err = b.stopFor(ctx, i, slowPeriod-runs)
			rest(ctx, runs)
		}
	})
	return func() error {
		cancel()
		slowing.Wait()
		b.logf("%s: no longer slow", b.Node(i))
		return err
	}
}

// stopFor stops what runs of jobs on node i for a while.
func (b *Bed) stopFor(ctx context.Context, i int, while time.Duration) error {
	all, err := b.Processes(i)
	if err != nil {
		return err
	}
	var job []Process
	for _, p := range all {
		if !p.Infra {
			job = append(job, p)
		}
	}
	err = signalAll(job, syscall.SIGSTOP)
	rest(ctx, while)
	return errors.Join(err, signalAll(job, syscall.SIGCONT))
}

// rest waits, or until ctx is done.
func rest(ctx context.Context, while time.Duration) {
	timer := time.NewTimer(while)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
