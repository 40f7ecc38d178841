package process

import (
	"context"
	"runtime"
	"sync"
)

// forkers run jobs on threads that live until the daemon's end or close. The kernel sends a child its parent-death signal
// when the thread that forked it ends, and the Go runtime ends other threads as it likes. A fork that hangs holds up no
// other: there are as many threads as jobs were running at the same time.
type forkers struct {
	jobs chan func()
	life context.Context
	// close ends the threads that are idle, and the others after their jobs. No job may come after it.
	close context.CancelFunc
	wg    sync.WaitGroup
}

func newForkers() *forkers {
	life, end := context.WithCancel(context.Background())
	return &forkers{jobs: make(chan func()), life: life, close: end}
}

// do has job run on such a thread. It does not wait for it.
func (f *forkers) do(job func()) {
	select {
	case f.jobs <- job:
	default:
		f.wg.Go(func() { f.serve(job) })
	}
}

func (f *forkers) serve(job func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		job()
		select {
		case job = <-f.jobs:
		case <-f.life.Done():
			return
		}
	}
}
