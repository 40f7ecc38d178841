package testbed

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"
)

// slowPeriod is the interval at which a slow node's processes run for a while.
const slowPeriod = 100 * time.Millisecond

// SlowNode stops the job's processes on node i periodically, so that they run only for the given
// fraction of the time (between 0 and 1). It returns at once. The fault lasts until ctx is done or
// heal is called, and heal must be called. No other fault that stops processes may be active on the
// node.
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

// stopFor stops the running job processes on node i for the given duration.
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

// rest waits for the given duration or until ctx is done.
func rest(ctx context.Context, while time.Duration) {
	timer := time.NewTimer(while)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
