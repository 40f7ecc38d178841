package daemon

import (
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
)

// mount is one daemon's access to the shared file system, which the test can block.
type mount struct {
	mu      sync.Mutex
	blocked chan struct{} // closed when the mount recovers; nil if it does not hang
	refuses bool
}

// stop makes it hang, or refuse every call.
func (m *mount) stop(refuses bool) {
	if !refuses {
		m.stall()
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuses = true
}

// pass is called before each call.
func (m *mount) pass(signal.Op, string) error {
	m.mu.Lock()
	blocked, refuses := m.blocked, m.refuses
	m.mu.Unlock()
	if refuses {
		return syscall.EACCES
	}
	if blocked != nil {
		<-blocked
	}
	return nil
}

func (m *mount) stall() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.blocked == nil {
		m.blocked = make(chan struct{})
	}
}

func (m *mount) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.blocked != nil {
		close(m.blocked)
		m.blocked = nil
	}
	m.refuses = false
}

// mounted returns a job of three nodes with a service each, whose mounts can hang. The driver saves
// its work at SIGTERM.
func mounted(t *testing.T, peer time.Duration) (j *job, mounts []*mount, marks string) {
	t.Helper()
	marks = t.TempDir()
	j = newJob(t, 3, saving(marks, "0")).all(func(c *deps.Config) {
		c.Times.Peer = peer
		c.Framework = ending(t, marks)
		m := new(mount)
		mounts = append(mounts, m)
		c.Access = asking(m.pass)
	})
	t.Cleanup(func() { // before the job's own cleanup, which reads the remaining files
		for i, m := range mounts {
			m.release()
			j.configs[i].Access.Meter.AwaitIdle(bounded(t))
		}
	})
	return j, mounts, marks
}

// allRunning waits until the driver runs and every worker has finished its last file operation that
// belongs to the gate: a worker that hangs in such an operation reports the hang in different
// terms.
func (j *job) allRunning(marks string) {
	j.t.Helper()
	j.untilFile(filepath.Join(marks, "running"))
	for nodeIndex := 1; nodeIndex < j.size; nodeIndex++ {
		j.until("a worker that has nothing left to do", func() bool {
			return strings.Contains(j.daemonEvents(nodeIndex), `"phase":"driver"`)
		})
	}
}

const stalled = "the shared file system has not responded to"

// TestAMissingShareIsOutwaited verifies that, once the job runs, a missing shared file system costs
// only records while the peer links are healthy: for a while or until the end, on one node or on
// all.
func TestAMissingShareIsOutwaited(t *testing.T) {
	t.Parallel()
	const peer = 4 * time.Second
	for _, tc := range []struct {
		name    string
		which   []int
		refuses bool // the calls fail at once, as with an expired ticket
		returns bool
	}{
		{"the head's, for a while", []int{0}, false, true},
		{"the head's, until the driver has ended", []int{0}, false, false},
		{"a worker's, for a while", []int{1}, false, true},
		{"a worker's, until the driver has ended", []int{1}, false, false},
		{"all, for a while", []int{0, 1, 2}, false, true},
		{"all, until the driver has ended", []int{0, 1, 2}, false, false},
		{"all refuse, for a while", []int{0, 1, 2}, true, true},
		{"the head's refuses, until the driver has ended", []int{0}, true, false},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			j, mounts, marks := mounted(t, peer)
			over := filepath.Join(marks, "over")
			j.all(func(c *deps.Config) {
				c.Times.Share = ceiling
				c.Driver = service.ShellCommand("touch " + marks + "/running; until [ -e " + over +
					" ]; do echo works; sleep 0.05; done")
			})
			j.start()
			j.allRunning(marks)
			for _, nodeIndex := range tc.which {
				mounts[nodeIndex].stop(tc.refuses)
			}
			time.Sleep(2 * peer)
			// A worker whose peer link is healthy polls rarely.
			j.until("that people are told of it",
				func() bool { return strings.Contains(j.said(), "the shared file system does not respond") })
			if ended := j.ended(); len(ended) > 0 {
				t.Fatalf("these daemons have ended for want of a share: %v", ended)
			}
			if tc.returns {
				for _, nodeIndex := range tc.which {
					mounts[nodeIndex].release()
				}
				j.until("the word that it is back",
					func() bool {
						return strings.Contains(j.said(),
							"the shared file system responds to all nodes again")
					})
			}
			touch(t, over)
			j.expect(0, 0, 0)
			if tc.returns && j.result().Outcome != health.DriverOutcomeName {
				t.Errorf("the result is %+v", j.result())
			}
		})
	}
}

// TestAMissingShareIsNotOutwaited verifies that a file system that stays away is not tolerated for
// ever, nor one that hides whether a peer lives: then all daemons end with one code, and the lost
// one is named.
func TestAMissingShareIsNotOutwaited(t *testing.T) {
	t.Parallel()
	const peer = 2 * time.Second
	for _, tc := range []struct {
		name  string
		share time.Duration
		lose  func(*playedLine)
		codes []int
		says  string
	}{
		{"when its time is over", 3 * peer, func(*playedLine) {}, []int{66, -1, 66, 66}, stalled},
		{"when a worker's daemon dies", ceiling, func(p *playedLine) { p.close() },
			[]int{76, -1, 76, 76}, "the daemon of node 1 (n1) has died"},
		{"when a worker leaves", ceiling, func(p *playedLine) { p.worker.SayGoodbye() },
			[]int{76, -1, 76, 76}, "the daemon of node 1 (n1) has ended and could not record " +
				"this in the run directory"},
		{"when a worker falls silent", ceiling, func(p *playedLine) { p.freeze() },
			[]int{76, -1, 76, 76}, "node 1 (n1) hangs"},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			var mounts []*mount
			j := newJob(t, 4, "exec sleep 300").all(func(c *deps.Config) {
				c.Times.Peer, c.Times.Share = peer, tc.share
				m := new(mount)
				mounts = append(mounts, m)
				c.Access = asking(m.pass)
			})
			t.Cleanup(func() {
				for i, m := range mounts {
					m.release()
					j.configs[i].Access.Meter.AwaitIdle(bounded(t))
				}
			})
			j.start(1)
			p := j.playWorker(1)
			line := j.playLine(p, 1)
			j.untilNamed(signal.ControlDir, signal.NameGateOpen)
			j.until("workers that have nothing left to do", func() bool {
				for _, nodeIndex := range []int{2, 3} {
					if !strings.Contains(j.daemonEvents(nodeIndex), `"phase":"driver"`) {
						return false
					}
				}
				return true
			})
			for _, m := range mounts {
				m.stall()
			}
			j.until("the word of it", func() bool {
				return strings.Contains(j.said(),
					"the shared file system does not respond")
			})
			p.silence()
			tc.lose(line)
			j.expect(tc.codes...)
			if said := j.said(); !strings.Contains(said, tc.says) {
				t.Errorf("nobody says that %s:\n%s", tc.says, said)
			}
		})
	}
}

// TestTheReasonIsKnownDuringASilence lets a run fail while the shared file system of a worker does not
// answer: the worker knows the reason by its peer link.
func TestTheReasonIsKnownDuringASilence(t *testing.T) {
	t.Parallel()
	const peer, unread = 4 * time.Second, "and its record cannot be read"
	for _, tc := range []struct {
		name  string
		after time.Duration // from the head's message to the file system's answer
	}{
		{"at once", 0},
		{"later", peer},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			j, mounts, marks := mounted(t, peer)
			j.all(func(c *deps.Config) { c.Times.Share = ceiling })
			j.start()
			j.allRunning(marks)
			mounts[1].stall()
			time.Sleep(3 * peer / 4)
			j.signals[0] <- syscall.SIGTERM
			j.until("the head's end", func() bool { _, ended := j.ended()[0]; return ended })
			time.Sleep(tc.after)
			mounts[1].release()
			j.expect(143, 143, 143)
			if strings.Contains(j.said(), unread) {
				t.Errorf("node 1 does not know the reason: %s", j.said())
			}
		})
	}
}

// TestAFullShareEndsAllNodes fills the shared file system before the gate: all nodes end at once with
// the code and the cause of the head, although it cannot write them.
func TestAFullShareEndsAllNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var isFull atomic.Bool
		j, _, _ := mounted(t, 10*time.Second)
		j.all(func(c *deps.Config) {
			c.Setup = onLaunch(0, "sleep 2", "true") // the others have nothing left to write
			c.Access = asking(func(op signal.Op, path string) error {
				isFull.CompareAndSwap(false, strings.Contains(path, "/"+signal.ControlDir+"/."+signal.NameHead))
				if op == signal.OpWrite && isFull.Load() {
					return syscall.ENOSPC
				}
				return nil
			})
		})
		began := time.Now()
		j.start().expect(66, 66, 66)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
