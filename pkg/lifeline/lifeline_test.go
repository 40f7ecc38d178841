package lifeline

import (
	"syscall"
	"testing"
)

func TestBeatsAndNudges(t *testing.T) {
	h, w := meet(t)
	h.news.wait(t, "1 heard", 5)
	w.news.wait(t, "heard", 5)
	h.Nudge()
	w.news.wait(t, "nudged", 1)
	w.Nudge()
	h.news.wait(t, "1 nudged", 1)
	expect(t, "head", h.news.news, "1 connected", "1 nudged")
	expect(t, "worker", w.news.news, "connected", "nudged")
	if !w.LocalAddress().IsLoopback() || h.Stats() != (Stats{Connected: 1}) {
		t.Errorf("from %v, %+v", w.LocalAddress(), h.Stats())
	}
}

func TestFarewell(t *testing.T) {
	t.Run("of the worker", func(t *testing.T) {
		h, w := meet(t)
		w.Farewell()
		<-w.done
		h.news.wait(t, "1 left", 1)
		expect(t, "head", h.news.news, "1 connected", "1 left")
		expect(t, "worker", w.news.news, "connected")
	})
	t.Run("of the head", func(t *testing.T) {
		h, w := meet(t)
		h.Farewell()
		h.stop()
		<-w.done
		expect(t, "worker", w.news.news, "connected", "left")
	})
	t.Run("of the head, to one who comes later", func(t *testing.T) {
		h := startHead(t, testConfig())
		h.Farewell()
		w := startWorker(t, testConfig(), 1, TCP{}, h.address)
		<-w.done
		h.news.wait(t, "1 left", 1)
		expect(t, "worker", w.news.news, "connected", "left")
	})
}

// A daemon that is killed, whatever it was doing.
func TestKilled(t *testing.T) {
	t.Run("the worker", func(t *testing.T) {
		h := startHead(t, testConfig())
		w := startHelper(t, h.address)
		h.news.wait(t, "1 heard", 2)
		w.kill()
		h.news.wait(t, "1 closed", 1)
	})
	t.Run("the head", func(t *testing.T) {
		h := startHelper(t, "head")
		w := startWorker(t, testConfig(), 1, TCP{}, h.address)
		w.news.wait(t, "heard", 2)
		h.kill()
		w.news.wait(t, "refused", 1)
		w.stop()
		expect(t, "worker", w.news.news, "connected", "refused")
	})
}

// A daemon that is stopped is silent, and its kernel answers.
func TestStopped(t *testing.T) {
	t.Run("the worker", func(t *testing.T) {
		h := startHead(t, testConfig())
		w := startHelper(t, h.address)
		h.news.wait(t, "1 heard", 2)
		_ = w.cmd.Process.Signal(syscall.SIGSTOP)
		silent(t, h.seats[1].link.Load())
		if e := h.Evidence(1); !e.Connected || !e.Answers {
			t.Errorf("the evidence is %+v", e)
		}
		_ = w.cmd.Process.Signal(syscall.SIGCONT)
		heard := h.news.count("1 heard")
		h.news.wait(t, "1 heard", heard+2)
	})
	t.Run("the head", func(t *testing.T) {
		h := startHelper(t, "head")
		w := startWorker(t, testConfig(), 1, TCP{}, h.address)
		w.news.wait(t, "heard", 2)
		_ = h.cmd.Process.Signal(syscall.SIGSTOP)
		silent(t, w.seat.link.Load())
		if e := w.Evidence(); !e.Connected || !e.Answers {
			t.Errorf("the evidence is %+v", e)
		}
		_ = h.cmd.Process.Signal(syscall.SIGCONT)
		heard := w.news.count("heard")
		w.news.wait(t, "heard", heard+2)
		w.stop()
		if w.news.count("closed")+w.news.count("broken")+w.news.count("refused") > 0 {
			t.Errorf("the worker was told %q", w.news.all())
		}
	})
}

// silent waits until nothing has come for long.
func silent(t *testing.T, l *link) {
	t.Helper()
	until(t, "the peer is silent", func() bool { return l.quiet() > 8*testBeat })
}
