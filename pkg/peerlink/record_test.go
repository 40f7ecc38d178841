package peerlink

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/proxy"
)

// tampering is one way to change the records of one direction, from the first read after its
// creation.
type tampering struct {
	name string
	do   func(record []byte, kept *[]byte) (instead []byte, stop bool)
}

var tamperings = []tampering{
	{"a byte is changed", func(record []byte, _ *[]byte) ([]byte, bool) {
		record[recordHeaderSize] ^= 1
		return record, false
	}},
	{"the tag is changed", func(record []byte, _ *[]byte) ([]byte, bool) {
		record[len(record)-1] ^= 0x80
		return record, false
	}},
	{"the length is changed", func(record []byte, _ *[]byte) ([]byte, bool) {
		record[0], record[1] = 0xff, 0xff
		return record, false
	}},
	{"the length is shorter", func(record []byte, _ *[]byte) ([]byte, bool) {
		binary.BigEndian.PutUint16(record, uint16(len(record)-recordHeaderSize-1))
		return record, false
	}},
	{"a record is put in", func(record []byte, _ *[]byte) ([]byte, bool) {
		return append([]byte("\x00\x11nothing of value!"), record...), false
	}},
	{"plain text is put in", func(record []byte, _ *[]byte) ([]byte, bool) {
		return append([]byte("nnnngggg"), record...), false
	}},
	{"a record is repeated", func(record []byte, _ *[]byte) ([]byte, bool) {
		return append(record, record...), false
	}},
	{"a record is left out", func(record []byte, kept *[]byte) ([]byte, bool) {
		if *kept == nil {
			*kept = record
			return nil, false
		}
		return record, false
	}},
	{"two records change places", func(record []byte, kept *[]byte) ([]byte, bool) {
		if *kept == nil {
			*kept = record
			return nil, false
		}
		return append(record, *kept...), false
	}},
	{"a record ends early", func(record []byte, _ *[]byte) ([]byte, bool) { return record[:len(record)-1], true }},
}

// of returns the tampering for one direction of the existing connections.
func (a tampering) of(toHead bool, used *atomic.Int64) proxy.Tamper {
	var mu sync.Mutex
	var kept []byte
	return func(direction bool, record []byte) ([]byte, bool) {
		if direction != toHead {
			return record, false
		}
		used.Add(1)
		mu.Lock()
		defer mu.Unlock()
		return a.do(record, &kept)
	}
}

// TestManInTheMiddle verifies that changing data on a peer link ends the connection and has no
// other effect: neither side receives a frame that was not sent, and once the changes stop they
// connect again.
func TestManInTheMiddle(t *testing.T) {
	for _, toHead := range []bool{true, false} {
		for _, tc := range tamperings {
			t.Run(fmt.Sprintf("%s, to the head: %v", tc.name, toHead), func(t *testing.T) {
				t.Parallel()
				h := startHead(t, slowConfig())
				middle := proxy.New(t, h.address)
				w := startWorker(t, slowConfig(), 1, TCP{}, middle.Address)
				w.news.wait(t, "connected", 1)
				h.news.wait(t, "1 heard", 2)
				var used atomic.Int64
				middle.Set(tc.of(toHead, &used))
				old := w.headSlot.link.Load()
				until(t, "the connection has ended", func() bool {
					if toHead {
						w.NotifyHead()
					} else {
						h.NotifyWorkers()
					}
					time.Sleep(10 * time.Millisecond)
					return !old.isOpen()
				})
				middle.Set(nil)
				if used.Load() == 0 {
					t.Error("no record was changed")
				}
				h.news.wait(t, "1 connected", 2)
				w.news.wait(t, "connected", 2)
				before, beforeHead := w.news.count("nudged"), h.news.count("1 nudged")
				until(t, "both hear each other again", func() bool {
					h.NotifyWorkers()
					w.NotifyHead()
					time.Sleep(10 * time.Millisecond)
					return w.news.count("nudged") > before && h.news.count("1 nudged") > beforeHead
				})
				for _, never := range []string{"1 left", "1 closed", "1 sick", "closed", "left",
					"rejected", "refused"} {
					if h.news.count(never)+w.news.count(never) > 0 {
						t.Errorf("%q was told: %q and %q", never, h.news.all(), w.news.all())
					}
				}
			})
		}
	}
}
