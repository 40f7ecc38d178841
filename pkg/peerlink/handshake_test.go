package peerlink

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flynn/noise"
)

// recorder is a connection that records all that is written.
type recorder struct {
	net.Conn
	written []byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.written = append(r.written, p...)
	return r.Conn.Write(p)
}

// recording returns the bytes that a worker with that index sends to the head at the address until
// it is accepted. The head of a recording has no worker with that index.
func recording(t *testing.T, key []byte, node int, address string) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must(t, err)
	defer conn.Close()
	kept := &recorder{Conn: conn}
	sealed, err := handshakeAsWorker(kept, key, node, identity{})
	must(t, err)
	sealed.Conn = kept
	_, _ = sealed.Write([]byte{frameGoodbye})
	return kept.written
}

// hearMessage reads the preface and the message after it.
func hearMessage(conn net.Conn, message []byte) error {
	if err := readPreface(conn); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, message)
	return err
}

// call simulates a worker up to its claim.
func call(t *testing.T, conn net.Conn, key []byte) (sealed *secureConn) {
	t.Helper()
	state, err := newHandshake(key, true)
	must(t, err)
	first, _, _, _ := state.WriteMessage([]byte(preface), nil)
	_, _ = conn.Write(first)
	var answer [messageSize]byte
	must(t, hearMessage(conn, answer[:]))
	_, sends, receives, err := state.ReadMessage(nil, answer[:])
	must(t, err)
	return &secureConn{Conn: conn, encrypter: sends, decrypter: receives}
}

// TestStrangers verifies that connections of other programs are dropped and counted, and do not
// affect the job's.
func TestStrangers(t *testing.T) {
	other := startHead(t, Config{Key: otherKey, Nodes: 4, HeartbeatInterval: time.Second})
	ofOther := recording(t, otherKey, 2, other.address)
	says := func(said []byte) func(*testing.T, net.Conn, []byte) {
		return func(_ *testing.T, conn net.Conn, _ []byte) { _, _ = conn.Write(said) }
	}
	claims := func(rank uint32, alter func(sealed []byte)) func(*testing.T, net.Conn, []byte) {
		return func(t *testing.T, conn net.Conn, _ []byte) {
			c := newClaim(rank, identity{})
			sealed, _ := call(t, conn, testKey).encrypter.Encrypt(nil, nil, c[:])
			if alter != nil {
				alter(sealed)
			}
			_, _ = conn.Write(sealed)
		}
	}
	for _, tc := range []struct {
		name string
		say  func(t *testing.T, conn net.Conn, recorded []byte)
		want *rejection
	}{
		{"another key", func(_ *testing.T, conn net.Conn, _ []byte) {
			_, _ = handshakeAsWorker(conn, otherKey, 2, identity{})
		}, errWrongKey},
		{"no key", func(_ *testing.T, conn net.Conn, _ []byte) {
			state, _ := noise.NewHandshakeState(noise.Config{
				CipherSuite: testSuite, Pattern: noise.HandshakeNN, Initiator: true, Prologue: []byte(preface),
			})
			first, _, _, _ := state.WriteMessage([]byte(preface), make([]byte, tagSize))
			_, _ = conn.Write(first)
		}, errWrongKey},
		{"a claim with a changed rank", claims(2, func(sealed []byte) { sealed[3] ^= 1 }), errWrongKey},
		{"a claim with a changed identity", claims(2, func(sealed []byte) { sealed[4]++ }), errWrongKey},
		{"a claim with a changed tag", claims(2, func(sealed []byte) { sealed[claimSize]++ }), errWrongKey},
		{"the head's own answer", func(t *testing.T, conn net.Conn, _ []byte) {
			state, _ := newHandshake(testKey, true)
			first, _, _, _ := state.WriteMessage([]byte(preface), nil)
			_, _ = conn.Write(first)
			var answer [messageSize]byte
			if err := hearMessage(conn, answer[:]); err != nil {
				t.Error(err)
			}
			_, _ = conn.Write(answer[:])
		}, errWrongKey},
		{"a recording", func(_ *testing.T, conn net.Conn, recorded []byte) {
			_, _ = conn.Write(recorded)
		}, errWrongKey},
		{"a recording of another attempt", says(ofOther), errWrongKey},
		{"a recorded claim", func(t *testing.T, conn net.Conn, recorded []byte) {
			call(t, conn, testKey)
			_, _ = conn.Write(recorded[len(preface)+messageSize:])
		}, errWrongKey},
		{"zeros", says(make([]byte, 200)), errWrongProtocol},
		{"a browser", says([]byte("GET / HTTP/1.1\r\n\r\n")), errWrongProtocol},
		{"version 1", says([]byte("bringupd\x01")), errWrongProtocol},
		{"another version", says([]byte("bringupd\x02")), errWrongProtocol},
		{"much", says(bytes.Repeat([]byte("much"), 1<<20)), errWrongProtocol},
		{"the head's rank", claims(0, nil), errWrongIndex},
		{"a rank too many", claims(4, nil), errWrongIndex},
		{"a rank below zero", claims(1<<32-1, nil), errWrongIndex},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, w := meet(t)
			recorded := recording(t, testKey, 2, h.address)
			h.news.wait(t, "2 left", 1)
			conn, err := net.Dial("tcp", h.address)
			must(t, err)
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(ceiling))
			tc.say(t, conn, recorded)
			said, err := io.ReadAll(conn)
			if most := len(preface) + messageSize; len(said) > most || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the head said %d bytes, and then %v", len(said), err)
			}
			want := map[string]int{tc.want.reason: 1}
			until(t, "it is counted", func() bool { return maps.Equal(h.Stats().Rejected, want) })
			h.NotifyWorkers()
			w.news.wait(t, "nudged", 1)
			expect(t, "head", h.news.news, "1 connected", "2 connected", "2 left")
		})
	}
}

// TestNoKey verifies that a side without a complete key does not connect: the library would omit
// the authentication.
func TestNoKey(t *testing.T) {
	for _, key := range [][]byte{nil, {}, make([]byte, KeySize-1), make([]byte, KeySize+1)} {
		near, far := newMemoryPair()
		_, err := handshakeAsWorker(near, key, 1, identity{})
		if err == nil || !strings.Contains(err.Error(), "cannot connect with a key of") {
			t.Errorf("a worker with a key of %d bytes: %v", len(key), err)
		}
		theirs, _ := newHandshake(testKey, true)
		first, _, _, _ := theirs.WriteMessage([]byte(preface), nil)
		_, _ = near.Write(first)
		if _, _, err = handshakeAsHead(far, key); err == nil ||
			!strings.Contains(err.Error(), "cannot connect with a key of") {
			t.Errorf("a head with a key of %d bytes: %v", len(key), err)
		}
	}
}

// TestFlood verifies that half-open connections, in any number, do not displace the job's.
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
	for range h.cfg.Nodes + 64 + more {
		conn, err := net.Dial("tcp", h.address)
		must(t, err)
		flood = append(flood, conn)
	}
	until(t, "some are crowded out", func() bool { return h.Stats().Rejected[errTooManyConns.reason] >= 1 })
	second := startWorker(t, slowConfig(), 2, TCP{}, h.address)
	second.news.wait(t, "connected", 1)
	until(t, "all are gone", func() bool {
		s := h.Stats().Rejected
		return s[errTooManyConns.reason]+s[errNoProof.reason] == len(flood)
	})
	h.NotifyWorkers()
	w.news.wait(t, "nudged", 1)
	second.news.wait(t, "nudged", 1)
	expect(t, "head", h.news.news, "1 connected", "2 connected")
	expect(t, "worker", w.news.news, "connected", "nudged")
}

// TestSlowStrangers verifies that every unauthenticated connection is closed after two seconds,
// however slowly it sends.
func TestSlowStrangers(t *testing.T) {
	for _, tc := range []struct {
		name string
		pace time.Duration // between two bytes
		all  bool          // it reads the preface
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
					if _, err := io.ReadFull(conn, make([]byte, len(preface))); err != nil {
						t.Fatal(err)
					}
					state, _ := newHandshake(testKey, true)
					said, _, _, _ = state.WriteMessage([]byte(preface), nil)
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
				until(t, "it is counted", func() bool {
					return maps.Equal(h.Stats().Rejected, map[string]int{errNoProof.reason: 1})
				})
				if took := time.Since(begin).Round(10 * time.Millisecond); took != unprovenTimeout {
					t.Errorf("it had %v", took)
				}
				h.stop()
				_ = conn.Close()
				expect(t, "head", h.news.news)
			})
		})
	}
}

// TestVisitorsThatLeave verifies that a connection that its other side closes was not rejected.
func TestVisitorsThatLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &memory{}
		listener, _ := network.Listen()
		h := runHead(t, testConfig(), listener)
		conn, _ := network.Dial(t.Context(), "")
		_ = conn.Close() // as a scan of ports, or a client of exec that is interrupted
		time.Sleep(time.Minute)
		if stats := h.Stats(); stats.Rejected != nil {
			t.Errorf("it is counted as rejected: %v", stats)
		}
		h.stop()
		expect(t, "head", h.news.news)
	})
}

// TestFreshKeys verifies that both sides' keys are new each time: a recording of one connection
// cannot be replayed on another, nor decrypted with the run's key.
func TestFreshKeys(t *testing.T) {
	seen := map[[32]byte]string{}
	for _, when := range []string{"at first", "again"} {
		near, far := newMemoryPair()
		worker, head := &recorder{Conn: near}, &recorder{Conn: far}
		introduced := make(chan error)
		go func() {
			_, err := handshakeAsWorker(worker, testKey, 1, identity{})
			introduced <- err
		}()
		_, sealed, err := handshakeAsHead(head, testKey)
		if err == nil {
			err = sendVerdict(sealed, verdictAccepted)
		}
		if err := errors.Join(err, <-introduced); err != nil {
			t.Fatalf("cannot shake hands %s: %v", when, err)
		}
		for whose, said := range map[string][]byte{"the head's": head.written, "the worker's": worker.written} {
			key := [32]byte(said[len(preface):])
			if before, ok := seen[key]; ok {
				t.Errorf("%s key %s was %s", whose, when, before)
			}
			seen[key] = whose + " " + when
		}
	}
}

// answerTo returns a head's answer to a worker, without the preface.
func answerTo(t *testing.T, address string) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must(t, err)
	defer conn.Close()
	read := &readRecorder{Conn: conn}
	if _, err := handshakeAsWorker(read, testKey, 2, identity{}); err != nil {
		t.Fatal(err)
	}
	return read.read[len(preface):]
}

// readRecorder is a connection that records all that is read.
type readRecorder struct {
	net.Conn
	read []byte
}

func (r *readRecorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.read = append(r.read, p[:n]...)
	return n, err
}

// TestFalseHead verifies that a head without the key is rejected, whatever it sends.
func TestFalseHead(t *testing.T) {
	recorded := answerTo(t, startHead(t, slowConfig()).address)
	for _, tc := range []struct {
		name string
		play func(conn net.Conn, said []byte) // said is the worker's first message
	}{
		{"it welcomes all", func(conn net.Conn, _ []byte) {
			_, _ = conn.Write(append(make([]byte, messageSize+verdictSize+tagSize), "nnngggg"...))
		}},
		{"it rejects all", func(conn net.Conn, _ []byte) {
			_, _ = conn.Write(bytes.Repeat([]byte{verdictDuplicate}, messageSize+verdictSize+tagSize))
		}},
		{"it echoes the message", func(conn net.Conn, said []byte) { _, _ = conn.Write(said) }},
		{"it repeats a recording of the head", func(conn net.Conn, _ []byte) { _, _ = conn.Write(recorded) }},
		{"it has another key", func(conn net.Conn, _ []byte) {
			worker, _ := newHandshake(otherKey, true)
			head, _ := newHandshake(otherKey, false)
			first, _, _, _ := worker.WriteMessage(nil, nil)
			_, _, _, _ = head.ReadMessage(nil, first)
			answer, _, sends, err := head.WriteMessage(nil, nil)
			if err != nil {
				t.Error(err)
			}
			verdict, _ := sends.Encrypt(nil, nil, []byte{verdictDuplicate})
			_, _ = conn.Write(append(answer, verdict...))
		}},
		{"it says nothing", func(net.Conn, []byte) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			listener, err := TCP{}.Listen()
			must(t, err)
			defer listener.Close()
			_, port, _ := net.SplitHostPort(listener.Addr().String())
			w := startWorker(t, slowConfig(), 1, TCP{}, net.JoinHostPort("127.0.0.1", port))
			for tries := range 3 { // it connects again
				_ = listener.(*net.TCPListener).SetDeadline(time.Now().Add(ceiling))
				conn, err := listener.Accept()
				if err != nil {
					t.Fatalf("after %d tries the worker does not come again, and was told %v: %v",
						tries, w.news.all(), err)
				}
				_ = conn.SetDeadline(time.Now().Add(ceiling))
				_, _ = conn.Write([]byte(preface))
				said := make([]byte, messageSize)
				must(t, hearMessage(conn, said))
				tc.play(conn, said)
				_ = conn.Close()
			}
			w.stop()
			expect(t, "worker", w.news.news)
		})
	}
}

// TestUnknownFrame verifies that a peer that has the key and violates the protocol is disconnected.
func TestUnknownFrame(t *testing.T) {
	h, w := meet(t)
	conn := w.headSlot.link.Load().conn
	_, _ = conn.Write(bytes.Repeat([]byte{'x'}, 1<<16))
	h.news.wait(t, "1 connected", 2)
	h.NotifyWorkers()
	w.news.wait(t, "nudged", 1)
}
