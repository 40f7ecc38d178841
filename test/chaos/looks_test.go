//go:build testbed

package chaos

import (
	"sync"
	"time"

	"github.com/bringupd/bringupd/test/testbed"
)

// lookPause is the pause between two scans of the nodes' processes. Each scan reads all processes
// of the machine.
const lookPause = 50 * time.Millisecond

// looks scans the processes of all nodes periodically, for all jobs at once.
type looks struct {
	stop    chan struct{} // closed by end
	looking sync.WaitGroup

	mu   sync.Mutex
	last look          // guarded by mu
	next chan struct{} // closed and replaced after each scan; guarded by mu
}

// look is the result of a scan: the jobs' processes by node, without the testbed's own.
type look struct {
	began time.Time
	nodes [][]testbed.Process
	err   error
}

func watch(bed *testbed.Bed) *looks {
	l := &looks{stop: make(chan struct{}), next: make(chan struct{})}
	l.looking.Go(func() {
		for l.rest() {
			l.keep(lookAt(bed))
		}
	})
	return l
}

func lookAt(bed *testbed.Bed) look {
	now := look{began: time.Now()}
	all, err := bed.AllProcesses()
	now.err = err
	for _, processes := range all {
		var jobs []testbed.Process
		for _, p := range processes {
			if !p.Infra {
				jobs = append(jobs, p)
			}
		}
		now.nodes = append(now.nodes, jobs)
	}
	return now
}

func (l *looks) rest() bool {
	select {
	case <-l.stop:
		return false
	case <-time.After(lookPause):
		return true
	}
}

func (l *looks) keep(now look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = now
	close(l.next)
	l.next = make(chan struct{})
}

// after returns the result of a scan that began after the given moment.
func (l *looks) after(moment time.Time) look {
	for {
		l.mu.Lock()
		last, next := l.last, l.next
		l.mu.Unlock()
		if last.began.After(moment) {
			return last
		}
		<-next
	}
}

func (l *looks) end() {
	close(l.stop)
	l.looking.Wait()
}
