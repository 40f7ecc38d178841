package peerlink

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
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
				for _, never := range []string{"1 left", "1 closed", "1 sick", "closed", "left", "rejected", "refused"} {
					if h.news.count(never)+w.news.count(never) > 0 {
						t.Errorf("%q was told: %q and %q", never, h.news.all(), w.news.all())
					}
				}
			})
		}
	}
}

// TestManInTheMiddleOfAStream verifies that each side of a stream beside the peer link reads what
// the other one sent, up to the first change.
func TestManInTheMiddleOfAStream(t *testing.T) {
	for _, toHead := range []bool{true, false} {
		for _, tc := range tamperings {
			t.Run(fmt.Sprintf("%s, to the head: %v", tc.name, toHead), func(t *testing.T) {
				t.Parallel()
				const size = 100_000
				h := NewHead(slowConfig(), mustListen(t), nil)
				served, read := make(chan struct{}, 1), make(chan error, 2)
				var sent, got bytes.Buffer
				for i := 0; sent.Len() < size; i++ {
					fmt.Fprintf(&sent, "request %d\n", i)
				}
				send := func(conn io.Writer) { _, _ = conn.Write(sent.Bytes()) }
				receive := func(conn io.Reader) {
					_, err := io.Copy(&got, conn)
					read <- err
				}
				h.HandleStreams(CommandStream, func(_ context.Context, _ int, conn io.ReadWriteCloser) {
					defer conn.Close()
					served <- struct{}{}
					if toHead {
						receive(conn)
					} else {
						send(conn)
					}
				})
				run(t, h.Run)
				middle := proxy.New(t, h.listener.Addr().String())
				var used atomic.Int64
				var passed atomic.Int64
				tamper := tc.of(toHead, &used)
				middle.Set(func(direction bool, record []byte) ([]byte, bool) {
					if direction == toHead && passed.Add(1) <= 2 { // the first ones are not changed
						return record, false
					}
					return tamper(direction, record)
				})
				conn, err := DialStream(t.Context(), CommandStream, testKey, 1, TCP{}, []string{middle.Address})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				<-served
				if toHead {
					send(conn)
					_ = conn.(*secureConn).CloseWrite()
				} else {
					receive(conn)
				}
				select {
				case err = <-read:
				case <-time.After(ceiling):
					t.Fatal("it was never read to the end")
				}
				if !bytes.HasPrefix(sent.Bytes(), got.Bytes()) || got.Len() < 2*maxPayload || got.Len() >= sent.Len() {
					t.Errorf("%d bytes were read of %d, and they are a part of what was sent: %v",
						got.Len(), sent.Len(), bytes.HasPrefix(sent.Bytes(), got.Bytes()))
				}
				if !errors.Is(err, errForged) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("it ended by %v", err)
				}
				if seen := middle.Seen(); bytes.Contains(seen, []byte("request")) {
					t.Error("what is sent can be read on its way")
				}
			})
		}
	}
}

func mustListen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := TCP{}.Listen()
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
