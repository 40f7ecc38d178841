package process

import (
	"context"
	"runtime"
	"sync"
)

// forkThreads runs jobs on threads that live until the daemon ends or [forkThreads.shutDown] is
// called. The kernel sends a child its parent-death signal when the thread that forked it ends, and
// the Go runtime ends its other threads at any time. A fork that hangs does not block others: there
// are as many threads as jobs that ran at the same time.
type forkThreads struct {
	jobs     chan func()
	lifetime context.Context
	// shutDown ends idle threads at once and busy ones after their jobs. Nothing may call
	// [forkThreads.runJob] after it.
	shutDown context.CancelFunc
	wg       sync.WaitGroup
}

func newForkThreads() *forkThreads {
	life, end := context.WithCancel(context.Background())
	return &forkThreads{jobs: make(chan func()), lifetime: life, shutDown: end}
}

// runJob runs job on one of the threads. It does not wait for it.
func (f *forkThreads) runJob(job func()) {
	select {
	case f.jobs <- job:
	default:
		f.wg.Go(func() { f.serveJobs(job) })
	}
}

// serveJobs runs job and then further jobs on one thread, which it does not release in between.
func (f *forkThreads) serveJobs(job func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		job()
		select {
		case job = <-f.jobs:
		case <-f.lifetime.Done():
			return
		}
	}
}
