package peerlink

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flynn/noise"
	"go.uber.org/goleak"
)

// ceiling limits waits that end much sooner on any machine.
const ceiling = 60 * time.Second

const testBeat = 50 * time.Millisecond

var testKey, otherKey = []byte("0123456789abcdef0123456789abcdef"), make([]byte, KeySize)

func testConfig() Config { return Config{Key: testKey, Nodes: 4, HeartbeatInterval: testBeat} }

// slowConfig is for real sockets: it allows delays of two seconds on a busy machine.
func slowConfig() Config {
	cfg := testConfig()
	cfg.HeartbeatInterval = 500 * time.Millisecond
	return cfg
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// news is the list of events that one side has received, in order.
type news struct {
	mu   sync.Mutex
	told []string
	more chan struct{} // closed at the next event
}

func newNews() *news { return &news{more: make(chan struct{})} }

func (n *news) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, fmt.Sprintf(format, args...))
	close(n.more)
	n.more = make(chan struct{})
}

// all returns all events but heartbeats.
func (n *news) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(n.told), func(s string) bool { return strings.HasSuffix(s, "heard") })
}

func (n *news) count(what string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, one := range n.told {
		if one == what {
			count++
		}
	}
	return count
}

// wait waits until an event has occurred the given number of times.
func (n *news) wait(t testing.TB, what string, times int) {
	t.Helper()
	late := time.After(ceiling)
	for {
		n.mu.Lock()
		more := n.more
		n.mu.Unlock()
		if n.count(what) >= times {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("%q was not told %d times: %q", what, times, n.all())
		}
	}
}

// headNews records the events of a head's side.
type headNews struct{ *news }

func (n headNews) WorkerConnected(node int) { n.add("%d connected", node) }
func (n headNews) WorkerHeartbeat(node int, shareSick bool) {
	if shareSick {
		n.add("%d sick", node)
	} else {
		n.add("%d heard", node)
	}
}
func (n headNews) WorkerNotified(node int)              { n.add("%d nudged", node) }
func (n headNews) WorkerExit(node int)                  { n.add("%d exit", node) }
func (n headNews) WorkerGone(node int, how CloseReason) { n.add("%d %s", node, how) }

// workerNews records the events of a worker's side.
type workerNews struct{ *news }

func (n workerNews) HeadConnected() { n.add("connected") }
func (n workerNews) HeadHeartbeat(nudge bool) {
	if nudge {
		n.add("nudged")
	} else {
		n.add("heard")
	}
}
func (n workerNews) HeadGone(how CloseReason)      { n.add("%s", how) }
func (n workerNews) DuplicateDaemon(reason string) { n.add("rejected") }

// waitAny returns the first of the given events that occurs.
func (n *news) waitAny(t testing.TB, what ...string) string {
	t.Helper()
	var found string
	until(t, strings.Join(what, " or ")+" is told", func() bool {
		at := slices.IndexFunc(what, func(one string) bool { return n.count(one) > 0 })
		if at >= 0 {
			found = what[at]
		}
		return at >= 0
	})
	return found
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits until holds is true.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for late := time.Now().Add(ceiling); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("it was never so that %s", what)
		}
	}
}

// aHead is a head that runs until it is stopped.
type aHead struct {
	*Head
	news    headNews
	address string
	stop    func() // and waits for its end
}

func startHead(t testing.TB, cfg Config) *aHead {
	t.Helper()
	listener, err := TCP{}.Listen()
	must(t, err)
	return runHead(t, cfg, listener)
}

func runHead(t testing.TB, cfg Config, listener net.Listener) *aHead {
	h := &aHead{news: headNews{newNews()}}
	if addr, ok := listener.Addr().(*net.TCPAddr); ok {
		h.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(addr.Port))
	}
	h.Head = NewHead(cfg, listener, h.news)
	h.HandleReports(func(node int, name string, content []byte) {
		h.news.add("%d reported %s, %x", node, name, sha256.Sum256(content))
	})
	h.stop = run(t, h.Run)
	return h
}

// run runs f until the returned function is called or the test ends.
func run(t testing.TB, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// aWorker is a worker that runs until it is stopped.
type aWorker struct {
	*Worker
	news workerNews
	stop func() // and waits for its end
	done chan struct{}
}

func well() bool { return false }

func startWorker(t testing.TB, cfg Config, node int, network Network, addresses ...string) *aWorker {
	w := &aWorker{news: workerNews{newNews()}, done: make(chan struct{})}
	w.Worker = NewWorker(cfg, node, network, addresses, w.news, well)
	w.HandleReports(func(_ int, name string, content []byte) {
		w.news.add("reported %s, %x", name, sha256.Sum256(content))
	})
	w.stop = run(t, func(ctx context.Context) {
		defer close(w.done)
		w.Run(ctx)
	})
	return w
}

var testSuite = noise.NewCipherSuite(noise.DH25519, noise.CipherChaChaPoly, noise.HashSHA256)

// sealedPair returns the two ends of a connection in their state after a handshake.
func sealedPair(near, far net.Conn) (*secureConn, *secureConn) {
	key := func(first byte) *noise.CipherState {
		return noise.UnsafeNewCipherState(testSuite, [KeySize]byte{first}, 0)
	}
	return &secureConn{Conn: near, encrypter: key(1), decrypter: key(2)},
		&secureConn{Conn: far, encrypter: key(2), decrypter: key(1)}
}

// meet returns a head and a worker that are connected.
func meet(t testing.TB) (*aHead, *aWorker) {
	t.Helper()
	h := startHead(t, slowConfig())
	w := startWorker(t, slowConfig(), 1, TCP{}, h.address)
	h.news.wait(t, "1 connected", 1)
	w.news.wait(t, "connected", 1)
	return h, w
}

func expect(t *testing.T, whose string, n *news, want ...string) {
	t.Helper()
	if got := n.all(); !slices.Equal(got, want) {
		t.Errorf("the %s was told %q, not %q", whose, got, want)
	}
}
