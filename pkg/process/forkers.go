package process

import (
	"context"
	"runtime"
	"sync"
)

// forkers runs jobs on threads that live until the daemon ends or [forkers.close] is called. The
// kernel sends a child its parent-death signal when the thread that forked it ends, and the Go
// runtime ends its other threads at any time. A fork that hangs does not block others: there are as
// many threads as jobs that ran at the same time.
type forkers struct {
	jobs chan func()
	life context.Context
	// close ends idle threads at once and busy ones after their jobs. Nothing may call [forkers.do]
	// after it.
	close context.CancelFunc
	wg    sync.WaitGroup
}

func newForkers() *forkers {
	life, end := context.WithCancel(context.Background())
	return &forkers{jobs: make(chan func()), life: life, close: end}
}

// do runs job on one of the threads. It does not wait for it.
func (f *forkers) do(job func()) {
	select {
	case f.jobs <- job:
	default:
		f.wg.Go(func() { f.serve(job) })
	}
}

// serve runs job and then further jobs on one thread, which it does not release in between.
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
