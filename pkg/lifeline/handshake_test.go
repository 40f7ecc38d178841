package lifeline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// answer is what a worker of this claim says to the head.
func answer(key string, theirs challenge, c claim) []byte {
	return slices.Concat([]byte(preface), c[:], workerProof(key, theirs, c))
}

func readChallenge(t *testing.T, conn net.Conn) (theirs challenge) {
	t.Helper()
	var hello [len(preface) + challengeSize]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil || string(hello[:len(preface)]) != preface {
		t.Fatalf("the head said %q, %v", hello, err)
	}
	copy(theirs[:], hello[len(preface):])
	return theirs
}

// Whoever is not one of ours is dropped and counted, and ours don't notice.
func TestStrangers(t *testing.T) {
	key := testConfig().Key
	// What a worker of another attempt has said, to another head.
	other := claimOf(2, identity{})
	of := func(rank uint32) claim { return claimOf(rank, identity{}) }
	two := of(2)
	var once challenge
	draw(once[:])
	for _, tc := range []struct {
		name string
		say  func(theirs challenge) []byte
		want map[string]int
	}{
		{"another key", func(c challenge) []byte { return answer("another", c, two) }, map[string]int{errWrongKey.word: 1}},
		{"no key", func(c challenge) []byte { return answer("", c, two) }, map[string]int{errWrongKey.word: 1}},
		{"a proof for another rank", func(c challenge) []byte {
			said := answer(key, c, two)
			binary.BigEndian.PutUint32(said[len(preface):], 3)
			return said
		}, map[string]int{errWrongKey.word: 1}},
		{"a proof for another daemon", func(c challenge) []byte {
			said := answer(key, c, two)
			said[len(preface)+4]++
			return said
		}, map[string]int{errWrongKey.word: 1}},
		{"the head's own proof", func(c challenge) []byte {
			return slices.Concat([]byte(preface), two[:], headProof(key, c, two, welcome))
		}, map[string]int{errWrongKey.word: 1}},
		{"a replay", func(challenge) []byte { return answer(key, once, other) }, map[string]int{errWrongKey.word: 1}},
		{"a replay from another attempt", func(challenge) []byte { return answer("another", once, other) }, map[string]int{errWrongKey.word: 1}},
		{"zeros", func(challenge) []byte { return make([]byte, 200) }, map[string]int{errGarbage.word: 1}},
		{"a browser", func(challenge) []byte { return []byte("GET / HTTP/1.1\r\n\r\n") }, map[string]int{errGarbage.word: 1}},
		{"another version", func(challenge) []byte { return []byte("bringupd\x02") }, map[string]int{errGarbage.word: 1}},
		{"much", func(challenge) []byte { return bytes.Repeat([]byte("much"), 1<<20) }, map[string]int{errGarbage.word: 1}},
		{"the head's rank", func(c challenge) []byte { return answer(key, c, of(0)) }, map[string]int{errWrongRank.word: 1}},
		{"a rank too many", func(c challenge) []byte { return answer(key, c, of(4)) }, map[string]int{errWrongRank.word: 1}},
		{"a rank below zero", func(c challenge) []byte { return answer(key, c, of(1<<32-1)) }, map[string]int{errWrongRank.word: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, w := meet(t)
			conn, err := net.Dial("tcp", h.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			said := tc.say(readChallenge(t, conn))
			go func() { _, _ = conn.Write(said) }()
			_ = conn.SetReadDeadline(time.Now().Add(ceiling))
			if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the head said %d bytes more, %v", n, err)
			}
			until(t, "it is counted", func() bool { return maps.Equal(h.Stats().Strangers, tc.want) })
			h.Nudge()
			w.news.wait(t, "nudged", 1)
			expect(t, "head", h.news.news, "1 connected")
		})
	}
}

// Half-open connections in any number take no place from ours.
func TestFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	const more = 40
	h, w := meet(t)
	var flood []net.Conn
	defer func() {
		for _, conn := range flood {
			_ = conn.Close()
		}
	}()
	for range h.cfg.Size + 64 + more {
		conn, err := net.Dial("tcp", h.address)
		if err != nil {
			t.Fatal(err)
		}
		flood = append(flood, conn)
	}
	until(t, "some are crowded out", func() bool { return h.Stats().Strangers[errCrowded.word] >= 1 })
	second := startWorker(t, slowConfig(), 2, TCP{}, h.address)
	second.news.wait(t, "connected", 1)
	until(t, "all are gone", func() bool {
		s := h.Stats().Strangers
		return s[errCrowded.word]+s[errLate.word] == len(flood)
	})
	h.Nudge()
	w.news.wait(t, "nudged", 1)
	second.news.wait(t, "nudged", 1)
	expect(t, "head", h.news.news, "1 connected", "2 connected")
	expect(t, "worker", w.news.news, "connected", "nudged")
}

// Nobody has more than its two seconds, however it spends them.
func TestSlowStrangers(t *testing.T) {
	for _, tc := range []struct {
		name string
		pace time.Duration // between two bytes
		all  bool          // it reads the challenge
	}{
		{"it says nothing", time.Hour, true},
		{"it reads nothing", time.Hour, false},
		{"a byte at a time", 100 * time.Millisecond, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := &memory{}
				listener, _ := network.Listen()
				h := runHead(t, testConfig(), listener)
				begin := time.Now()
				conn, _ := network.Dial(t.Context(), "")
				var said []byte
				if tc.all {
					said = answer(h.cfg.Key, readChallenge(t, conn), claimOf(2, identity{}))
				}
				var saying sync.WaitGroup
				defer saying.Wait()
				saying.Go(func() {
					for _, b := range said {
						time.Sleep(tc.pace)
						if _, err := conn.Write([]byte{b}); err != nil {
							return
						}
					}
				})
				until(t, "it is counted", func() bool { return maps.Equal(h.Stats().Strangers, map[string]int{errLate.word: 1}) })
				if took := time.Since(begin).Round(10 * time.Millisecond); took != strangerTime {
					t.Errorf("it had %v", took)
				}
				h.stop()
				_ = conn.Close()
				expect(t, "head", h.news.news)
			})
		})
	}
}

// Both sides' challenges are new each time: what was said once serves nobody again.
func TestChallenges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key, seen := testConfig().Key, map[challenge]string{}
		for _, when := range []string{"at first", "again"} {
			near, far := net.Pipe()
			introduced := make(chan error)
			go func() { introduced <- introduce(near, key, 1, identity{}) }()
			c, ours, err := examine(far, key)
			if err := errors.Join(err, pronounce(far, key, c, ours, welcome), <-introduced); err != nil {
				t.Fatalf("cannot shake hands %s: %v", when, err)
			}
			theirs := challenge(c[4+identitySize:])
			for whose, drawn := range map[string]challenge{"the head's": ours, "the worker's": theirs} {
				if before, ok := seen[drawn]; ok {
					t.Errorf("%s challenge %s was %s", whose, when, before)
				}
				seen[drawn] = whose + " " + when
			}
		}
	})
}

// A head that does not know the key is not believed, whatever it says.
func TestFalseHead(t *testing.T) {
	for _, tc := range []struct {
		name string
		play func(conn net.Conn, said []byte) // after the challenge; said is the worker's answer
	}{
		{"it welcomes all", func(conn net.Conn, _ []byte) {
			_, _ = conn.Write(append(make([]byte, verdictSize+proofSize), "nnngggg"...))
		}},
		{"it rejects all", func(conn net.Conn, _ []byte) {
			_, _ = conn.Write(append([]byte{taken}, make([]byte, proofSize)...))
		}},
		{"it echoes the proof", func(conn net.Conn, said []byte) {
			_, _ = conn.Write(append([]byte{welcome}, said[len(said)-proofSize:]...))
		}},
		{"it has another key", func(conn net.Conn, said []byte) {
			c := claim(said[len(preface):])
			_, _ = conn.Write(append([]byte{taken}, headProof("another", challenge{}, c, taken)...))
		}},
		{"it says nothing", func(net.Conn, []byte) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			listener, err := TCP{}.Listen()
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			_, port, _ := net.SplitHostPort(listener.Addr().String())
			w := startWorker(t, slowConfig(), 1, TCP{}, net.JoinHostPort("127.0.0.1", port))
			for tries := range 3 { // it comes again
				_ = listener.(*net.TCPListener).SetDeadline(time.Now().Add(ceiling))
				conn, err := listener.Accept()
				if err != nil {
					t.Fatalf("after %d tries the worker does not come again, and was told %v: %v", tries, w.news.all(), err)
				}
				_ = conn.SetDeadline(time.Now().Add(ceiling))
				_, _ = conn.Write(append([]byte(preface), make([]byte, challengeSize)...))
				said := make([]byte, len(preface)+claimSize+proofSize)
				if _, err := io.ReadFull(conn, said); err != nil {
					t.Fatal(err)
				}
				tc.play(conn, said)
				_ = conn.Close()
			}
			w.stop()
			expect(t, "worker", w.news.news)
		})
	}
}

// Whoever knows the key and breaks the protocol is broken, not obeyed.
func TestUnknownFrame(t *testing.T) {
	h, w := meet(t)
	conn := w.seat.link.Load().conn
	_, _ = conn.Write(bytes.Repeat([]byte{'x'}, 1<<16))
	h.news.wait(t, "1 connected", 2)
	h.Nudge()
	w.news.wait(t, "nudged", 1)
}
