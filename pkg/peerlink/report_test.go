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

// TestReportsAfterReconnection verifies that frames of an earlier connection are not sent on a new
// one, where they would damage other reports.
func TestReportsAfterReconnection(t *testing.T) {
	inMemory(t, func(t *testing.T, network *memory, h *aHead, w *aWorker) {
		w.SendReport("before", nil)
		h.news.wait(t, reported("before", nil), 1)
		w.reports.add(make([]byte, 2*maxPayload)) // as if the kernel had had no room
		resetConn(network.last())
		w.news.wait(t, "connected", 2)
		w.SendReport("after", []byte("again"))
		h.news.wait(t, reported("after", []byte("again")), 1)
	})
}
