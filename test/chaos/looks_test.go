//go:build testbed

package chaos

import (
	"sync"
	"time"

	"github.com/bringupd/bringupd/test/testbed"
)

// lookPause is the time between two looks at the nodes' processes: each goes
// through all of the machine's.
const lookPause = 50 * time.Millisecond

// looks are what is seen again and again of the processes of all nodes, for all
// jobs at once.
type looks struct {
	stop    chan struct{} // closed by end
	looking sync.WaitGroup

	mu   sync.Mutex
	last look          // guarded by mu
	next chan struct{} // closed and replaced at each look, guarded by mu
}

// look is the jobs' processes by node, the bed's own left out.
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

// after returns a look that has begun after that moment.
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
