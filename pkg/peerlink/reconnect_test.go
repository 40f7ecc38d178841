package peerlink

import (
	"net"
	"net/netip"
	"reflect"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// inMemory runs test with a connected head and worker, with a simulated clock.
func inMemory(t *testing.T, name string, test func(t *testing.T, network *memory, h *aHead, w *aWorker)) {
	inBubble := func(t *testing.T) {
		network := &memory{}
		listener, _ := network.Listen()
		h := runHead(t, testConfig(), listener)
		w := startWorker(t, testConfig(), 1, network, nobody, "head")
		w.news.wait(t, "connected", 1)
		time.Sleep(testBeat / 2)
		test(t, network, h, w)
		w.stop()
		h.stop()
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, inBubble) })
}

// took returns the time until the event occurs.
func took(t *testing.T, n *news, what string) time.Duration {
	t.Helper()
	begin := time.Now()
	n.wait(t, what, 1)
	return time.Since(begin)
}

func TestEnds(t *testing.T) {
	inMemory(t, "closed in order, and nobody listens", func(t *testing.T, network *memory, h *aHead, w *aWorker) {
		_ = network.listen.Close() // first, otherwise the worker may come back while the head ends
		h.stop()
		if took := took(t, w.news.news, "refused"); took > time.Millisecond {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Minute)
		expect(t, "worker", w.news.news, "connected", "refused")
	})
	inMemory(t, "closed in order, and nobody answers", func(t *testing.T, network *memory, h *aHead, w *aWorker) {
		network.dark.Store(true)
		h.stop()
		if took := took(t, w.news.news, "closed"); took != 30*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Minute)
		expect(t, "worker", w.news.news, "connected", "closed")
	})
	inMemory(t, "closed in order, out of reach, and refused where it never was",
		func(t *testing.T, network *memory, h *aHead, w *aWorker) {
			network.apart.Store(true)
			h.stop()
			if took := took(t, w.news.news, "closed"); took != 30*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			expect(t, "worker", w.news.news, "connected", "closed")
		})
	inMemory(t, "the worker ends", func(t *testing.T, _ *memory, h *aHead, w *aWorker) {
		w.stop()
		if took := took(t, h.news.news, "1 closed"); took != 30*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		expect(t, "worker", w.news.news, "connected")
	})
	inMemory(t, "reset, and not back", func(t *testing.T, network *memory, h *aHead, w *aWorker) {
		network.dark.Store(true)
		resetConn(network.last())
		if took := took(t, h.news.news, "1 broken"); took != 4*testBeat {
			t.Errorf("it took %v", took)
		}
		w.news.wait(t, "broken", 1)
		network.dark.Store(false)
		w.news.wait(t, "connected", 2)
		h.news.wait(t, "1 connected", 2)
		expect(t, "head", h.news.news, "1 connected", "1 broken", "1 connected")
		if !reflect.DeepEqual(h.Stats(), record.LinkReport{Reconnects: 1}) {
			t.Errorf("seen %+v", h.Stats())
		}
	})
	inMemory(t, "reset, and back", func(t *testing.T, network *memory, h *aHead, w *aWorker) {
		network.apart.Store(true)
		resetConn(network.last())
		time.Sleep(3 * testBeat)
		network.apart.Store(false)
		time.Sleep(time.Minute)
		expect(t, "head", h.news.news, "1 connected", "1 connected")
		expect(t, "worker", w.news.news, "connected", "connected")
	})
	inMemory(t, "the network loses all for a while", func(t *testing.T, network *memory, h *aHead, w *aWorker) {
		network.dark.Store(true)
		network.last().lose()
		time.Sleep(10 * time.Second)
		if dials := network.dials.Load(); dials < 10 || dials > 40 {
			t.Errorf("it has dialled %d times", dials)
		}
		if !h.WorkerTCPState(1).Connected || !w.TCPState().Connected || h.WorkerTCPState(1).SilentFor < 9*time.Second {
			t.Errorf("the evidence is %+v and %+v", h.WorkerTCPState(1), w.TCPState())
		}
		network.dark.Store(false)
		w.news.wait(t, "connected", 2)
		h.news.wait(t, "1 connected", 2)
		expect(t, "head", h.news.news, "1 connected", "1 connected")
		expect(t, "worker", w.news.news, "connected", "connected")
	})
}

// TestEndsThatAreNoDeath verifies that an end that is not a death does not look like one to the
// other side: a death would be reported after 30 ms.
func TestEndsThatAreNoDeath(t *testing.T) {
	inMemory(t, "the head does not understand a frame", func(t *testing.T, network *memory, h *aHead, w *aWorker) {
		network.apart.Store(true)
		_, _ = w.headSlot.link.Load().conn.Write([]byte{'x'})
		w.news.waitAny(t, "closed", "broken", "refused")
		expect(t, "worker", w.news.news, "connected", "broken")
	})
	inMemory(t, "a new connection takes the place", func(t *testing.T, network *memory, h *aHead, w *aWorker) {
		conn, _ := network.Dial(t.Context(), "head")
		network.apart.Store(true)
		if _, err := handshakeAsWorker(conn, w.cfg.Key, 1, w.identity); err != nil {
			t.Fatal(err)
		}
		w.news.waitAny(t, "closed", "broken", "refused")
		expect(t, "worker", w.news.news, "connected", "broken")
	})
	t.Run("the worker has no more time for the handshake", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			network := &memory{}
			listener, _ := network.Listen()
			h := runHead(t, testConfig(), listener)
			w := startWorker(t, testConfig(), 1, deaf{network}, "head")
			h.news.wait(t, "1 connected", 1)
			network.apart.Store(true)
			h.news.waitAny(t, "1 closed", "1 broken")
			expect(t, "head", onlyLost(h.news.news), "1 broken")
			w.stop()
			h.stop()
		})
	})
}

func TestSecondDaemon(t *testing.T) {
	inMemory(t, "beside one that is well", func(t *testing.T, network *memory, h *aHead, w *aWorker) {
		second := startWorker(t, testConfig(), 1, network, "head")
		<-second.done
		time.Sleep(time.Minute)
		expect(t, "second", second.news.news, "rejected")
		expect(t, "worker", w.news.news, "connected")
		expect(t, "head", h.news.news, "1 connected")
		if !reflect.DeepEqual(h.Stats(), record.LinkReport{Rejected: map[string]int{errDuplicateDaemon.reason: 1}}) {
			t.Errorf("seen %+v", h.Stats())
		}
	})
	inMemory(t, "after one that has ended", func(t *testing.T, network *memory, h *aHead, w *aWorker) {
		w.stop()
		h.news.wait(t, "1 closed", 1)
		second := startWorker(t, testConfig(), 1, network, "head")
		second.news.wait(t, "connected", 1)
		h.news.wait(t, "1 connected", 2)
		expect(t, "head", h.news.news, "1 connected", "1 closed", "1 connected")
	})
	inMemory(t, "after one that is silent", func(t *testing.T, network *memory, h *aHead, w *aWorker) {
		network.last().lose()
		network.dark.Store(true)
		w.finish() // its host is lost
		time.Sleep(5 * testBeat)
		network.dark.Store(false)
		second := startWorker(t, testConfig(), 1, network, "head")
		second.news.wait(t, "connected", 1)
		h.news.wait(t, "1 connected", 2)
		expect(t, "head", h.news.news, "1 connected", "1 broken", "1 connected")
	})
}

// TestNeverConnected verifies that a worker that cannot reach the head from the start reports no
// event and keeps trying at a slow pace.
func TestNeverConnected(t *testing.T) {
	for _, dark := range []bool{false, true} {
		t.Run(strconv.FormatBool(dark), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := &memory{}
				network.dark.Store(dark)
				w := startWorker(t, testConfig(), 1, network, "head", "its other address")
				time.Sleep(10 * time.Minute)
				if dials := network.dials.Load() / 2; dials < 30 || dials > 100 {
					t.Errorf("it has dialled %d times", dials)
				}
				if e := w.TCPState(); e != (TCPState{}) || w.LocalAddress().IsValid() {
					t.Errorf("there is the evidence %+v from %v", e, w.LocalAddress())
				}
				expect(t, "worker", w.news.news)
				w.stop()
			})
		})
	}
}

// TestAddresses verifies that addresses that cannot be the head's are skipped.
func TestAddresses(t *testing.T) {
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer stranger.Close()
	_ = nobody.Close()
	go func() {
		for conn, err := stranger.Accept(); err == nil; conn, err = stranger.Accept() {
			_, _ = conn.Write([]byte("220 mail is welcome here\r\n"))
			_ = conn.Close()
		}
	}()
	h := startHead(t, slowConfig())
	w := startWorker(t, slowConfig(), 1, TCP{}, nobody.Addr().String(), stranger.Addr().String(), h.address)
	w.news.wait(t, "connected", 1)
	resetConn(w.headSlot.link.Load().conn.Conn)
	w.news.wait(t, "connected", 2)
	expect(t, "worker", w.news.news, "connected", "connected")
}

// TestAddressFamilies uses both kinds of address, as far as this machine has them.
func TestAddressFamilies(t *testing.T) {
	loopback, err := net.InterfaceByName("lo")
	must(t, err)
	addrs, err := loopback.Addrs()
	if err != nil || len(addrs) == 0 {
		t.Fatalf("lo has %v, %v", addrs, err)
	}
	for _, addr := range addrs {
		at := netip.MustParsePrefix(addr.String()).Addr()
		t.Run(at.String(), func(t *testing.T) {
			h := startHead(t, slowConfig())
			_, port, _ := net.SplitHostPort(h.address)
			w := startWorker(t, slowConfig(), 1, TCP{}, net.JoinHostPort(at.String(), port))
			w.news.wait(t, "heard", 2)
			if w.LocalAddress() != at {
				t.Errorf("from %v", w.LocalAddress())
			}
			if name, down := IsInterfaceDown(w.LocalAddress()); name != "lo" || down {
				t.Errorf("%s, down: %v", name, down)
			}
		})
	}
}

func TestLinkDownWithoutAnAddress(t *testing.T) {
	if name, down := IsInterfaceDown(netip.MustParseAddr("192.0.2.1")); name != "" || !down {
		t.Errorf("an address that is nobody's: %q, down: %v", name, down)
	}
	if name, down := IsInterfaceDown(netip.Addr{}); name != "" || down {
		t.Errorf("no address: %q, down: %v", name, down)
	}
}

func TestShareSick(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	var sick atomic.Bool
	h := startHead(t, slowConfig())
	w := NewWorker(slowConfig(), 3, TCP{}, []string{h.address}, workerNews{newNews()}, sick.Load)
	run(t, w.Run)
	h.news.wait(t, "3 heard", 2)
	sick.Store(true)
	h.news.wait(t, "3 sick", 2)
	sick.Store(false)
	h.news.wait(t, "3 heard", h.news.count("3 heard")+1)
}
