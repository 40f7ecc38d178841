package peerlink

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
)

// reported returns the event of a report of node 1.
func reported(name string, content []byte) string {
	return fmt.Sprintf("1 reported %s, %x", name, sha256.Sum256(content))
}

func TestReports(t *testing.T) {
	h, w := meet(t)
	random := make([]byte, maxReport-len("large\n"))
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	sent := []struct {
		name    string
		content []byte
	}{
		{"0001.i0002.g0.ready", nil},
		{"small", []byte("one line\n")},
		{"of one frame", random[:maxPayload-1-len("of one frame\n")]},
		{"of two frames", random[:maxPayload-len("of two frames\n")]},
		{"large", random},
	}
	want := []string{"1 connected"}
	for _, r := range sent {
		w.SendReport(r.name, r.content)
		want = append(want, reported(r.name, r.content))
	}
	w.SendReport("too large", append(random, make([]byte, 100)...))
	w.SendReport("last", nil)
	// A goodbye message does not overtake reports.
	w.SayGoodbye()
	<-w.done
	h.news.wait(t, "1 left", 1)
	expect(t, "head", h.news.news, append(want, reported("last", nil), "1 left")...)
}

// TestReportsOfHead verifies that connected workers receive a report of the head, and that workers
// that connect later receive it, too.
func TestReportsOfHead(t *testing.T) {
	h, w := meet(t)
	h.SendReport("drain", []byte("content"))
	want := fmt.Sprintf("reported drain, %x", sha256.Sum256([]byte("content")))
	w.news.wait(t, want, 1)
	w.stop()
	h.news.wait(t, "1 closed", 1)
	late := startWorker(t, slowConfig(), 1, TCP{}, h.address)
	late.news.wait(t, want, 1)
	expect(t, "worker", late.news.news, "connected", want)
}

// TestReportsAfterReconnection verifies that a part of a report on an earlier connection does not
// damage the next one.
func TestReportsAfterReconnection(t *testing.T) {
	inMemory(t, "in memory", func(t *testing.T, network *memory, h *aHead, w *aWorker) {
		w.SendReport("before", nil)
		h.news.wait(t, reported("before", nil), 1)
		l := w.headSlot.liveLink()
		l.conn.tryWriteFrame(l.trySend, append([]byte{frameReport}, "half of a report"...)...)
		resetConn(network.last())
		w.news.wait(t, "connected", 2)
		w.SendReport("after", []byte("again"))
		h.news.wait(t, reported("after", []byte("again")), 1)
	})
}
