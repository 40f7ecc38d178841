package peerlink

import (
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestBeatsAndNudges(t *testing.T) {
	h, w := meet(t)
	h.news.wait(t, "1 heard", 3)
	w.news.wait(t, "heard", 3)
	h.NotifyWorkers()
	w.news.wait(t, "nudged", 1)
	w.NotifyHead()
	h.news.wait(t, "1 nudged", 1)
	expect(t, "head", h.news.news, "1 connected", "1 nudged")
	expect(t, "worker", w.news.news, "connected", "nudged")
	if !w.LocalAddress().IsLoopback() || !reflect.DeepEqual(h.Stats(), record.LinkReport{}) {
		t.Errorf("from %v, %+v", w.LocalAddress(), h.Stats())
	}
}

func TestFarewell(t *testing.T) {
	t.Run("of the worker", func(t *testing.T) {
		h, w := meet(t)
		w.SayGoodbye()
		<-w.done
		h.news.wait(t, "1 left", 1)
		expect(t, "head", h.news.news, "1 connected", "1 left")
		expect(t, "worker", w.news.news, "connected")
	})
	t.Run("of the head", func(t *testing.T) {
		h, w := meet(t)
		h.SayGoodbye()
		h.stop()
		<-w.done
		expect(t, "worker", w.news.news, "connected", "left")
	})
	t.Run("of the head, which stays for a while", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			network := &memory{}
			listener, _ := network.Listen()
			h := runHead(t, testConfig(), listener)
			n := slowNews{workerNews{newNews()}}
			stop := run(t, NewWorker(testConfig(), 1, network, []string{"head"}, n, well).Run)
			n.wait(t, "connected", 1)
			h.SayGoodbye()
			time.Sleep(time.Minute)
			expect(t, "head", h.news.news, "1 connected", "1 left")
			expect(t, "worker", n.news, "connected", "left")
			stop()
			h.stop()
		})
	})
	t.Run("of the worker, to a head that does not answer", func(t *testing.T) {
		inMemory(t, func(t *testing.T, network *memory, h *aHead, w *aWorker) {
			network.last().lose()
			begin := time.Now()
			w.SayGoodbye()
			<-w.done
			if took := time.Since(begin); took != lingerTimeout {
				t.Errorf("it took %v", took)
			}
		})
	})
	t.Run("of the head, to one who comes later", func(t *testing.T) {
		h := startHead(t, slowConfig())
		h.SayGoodbye()
		w := startWorker(t, slowConfig(), 1, TCP{}, h.address)
		<-w.done
		h.news.wait(t, "1 left", 1)
		expect(t, "worker", w.news.news, "connected", "left")
	})
}

// TestStopped verifies that a stopped daemon counts as silent while its kernel answers, and that
// one that continues was never gone.
func TestStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	t.Run("the worker", func(t *testing.T) {
		t.Parallel()
		h := startHead(t, slowConfig())
		w := startHelper(t, h.address)
		h.news.wait(t, "1 heard", 2)
		_ = w.cmd.Process.Signal(syscall.SIGSTOP)
		silent(t, h.slots[1].link.Load(), h.WorkerTCPState, 1)
		_ = w.cmd.Process.Signal(syscall.SIGCONT)
		h.news.wait(t, "1 heard", h.news.count("1 heard")+2)
		expect(t, "head", onlyLost(h.news.news))
	})
	t.Run("the head", func(t *testing.T) {
		t.Parallel()
		h := startHelper(t, "head")
		w := startWorker(t, slowConfig(), 1, TCP{}, h.address)
		w.news.wait(t, "heard", 2)
		_ = h.cmd.Process.Signal(syscall.SIGSTOP)
		silent(t, w.headSlot.link.Load(), func(int) TCPState { return w.TCPState() }, 0)
		_ = h.cmd.Process.Signal(syscall.SIGCONT)
		w.news.wait(t, "heard", w.news.count("heard")+2)
		w.stop()
		expect(t, "worker", onlyLost(w.news.news))
	})
}

// silent waits until nothing has arrived for long and the evidence shows that the peer's kernel
// works.
func silent(t *testing.T, l *link, evidence func(int) TCPState, node int) {
	t.Helper()
	until(t, "the peer is silent and its kernel is well", func() bool {
		e := evidence(node)
		return l.silentFor() > 5*slowConfig().HeartbeatInterval && e.Connected && e.Acknowledges && e.SilentFor < l.silentFor()
	})
}

// onlyLost returns the news that report losses.
func onlyLost(n *news) *news {
	lost := newNews()
	for _, one := range n.all() {
		if !strings.HasSuffix(one, "connected") {
			lost.add("%s", one)
		}
	}
	return lost
}

// slowNews handles a loss slowly; nothing else may happen meanwhile.
type slowNews struct{ workerNews }

func (n slowNews) HeadGone(how CloseReason) {
	time.Sleep(time.Second)
	n.workerNews.HeadGone(how)
}
