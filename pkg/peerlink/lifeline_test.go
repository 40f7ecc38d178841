package peerlink

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestBeatsAndNudges(t *testing.T) {
	h, w := meet(t)
	h.news.wait(t, "1 heard", 3)
	w.news.wait(t, "heard", 3)
	until(t, "both kernels acknowledge data", func() bool {
		return w.TCPState().Acknowledges && h.WorkerTCPState(1).Acknowledges
	})
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
	inMemory(t, "of the worker, to a head that does not answer",
		func(t *testing.T, network *memory, h *aHead, w *aWorker) {
			network.last().lose()
			begin := time.Now()
			w.SayGoodbye()
			<-w.done
			if took := time.Since(begin); took != lingerTimeout {
				t.Errorf("it took %v", took)
			}
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
