package peerlink

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// answers is a network on which each call to an address gets the next of its answers; the last
// answer serves all later calls.
type answers struct {
	dials atomic.Int64

	mu    sync.Mutex
	given map[string][]reaction // guarded by mu
}

type reaction func(ctx context.Context) (net.Conn, error)

func (*answers) Listen() (net.Listener, error) { return nil, syscall.ENOTSUP }

func (a *answers) Dial(ctx context.Context, address string) (net.Conn, error) {
	a.dials.Add(1)
	a.mu.Lock()
	next := a.given[address][0]
	if len(a.given[address]) > 1 {
		a.given[address] = a.given[address][1:]
	}
	a.mu.Unlock()
	return next(ctx)
}

// refuses refuses a call. It and the following functions are the reactions to a call.
func refuses(context.Context) (net.Conn, error) { return nil, syscall.ECONNREFUSED }
func away(context.Context) (net.Conn, error)    { return nil, syscall.EHOSTUNREACH }
func unknown(context.Context) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}
}

func dark(ctx context.Context) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// takes returns a reaction that accepts the call and runs do on the accepting side.
func takes(do func(far *memoryConn)) reaction {
	return func(context.Context) (net.Conn, error) {
		near, far := newMemoryPair()
		do(far)
		return near, nil
	}
}

func says(what string) reaction {
	return takes(func(far *memoryConn) {
		_, _ = far.Write([]byte(what))
		_ = far.Close()
	})
}

// TestNeverConnectedToOneThatDies detects a head that has died before a worker's first connection:
// its kernel has accepted a call by then, and refuses the next. No other state is mistaken for it.
func TestNeverConnectedToOneThatDies(t *testing.T) {
	cut := takes(func(far *memoryConn) { _ = far.Close() })
	reset := takes(func(far *memoryConn) { resetConn(far) })
	silent := takes(func(*memoryConn) {})
	for _, tc := range []struct {
		name          string
		first, second []reaction // of the two addresses
		within        time.Duration
		want          []string
	}{
		{"cut, then refused", []reaction{cut, refuses}, []reaction{away}, 20 * time.Millisecond, []string{"refused"}},
		{"reset, then refused", []reaction{reset, refuses}, []reaction{refuses}, 20 * time.Millisecond, []string{"refused"}},
		{"cut in its first words", []reaction{says(preface), refuses}, []reaction{away}, 20 * time.Millisecond, []string{"refused"}},
		{"silent, then refused", []reaction{silent, refuses}, []reaction{away}, unprovenTimeout + 20*time.Millisecond, []string{"refused"}},
		{"cut late", []reaction{away, away, away, away, away, away, cut, refuses}, []reaction{away}, 6320 * time.Millisecond, []string{"refused"}},
		{"at the second address", []reaction{away}, []reaction{cut, refuses}, 20 * time.Millisecond, []string{"refused"}},
		{"cut twice, then refused", []reaction{cut, cut, refuses}, []reaction{away}, 50 * time.Millisecond, []string{"refused"}},
		{"again and again", []reaction{cut, refuses, cut, refuses, cut, refuses}, []reaction{away}, 20 * time.Millisecond, []string{"refused"}},
		{"cut, then no answer", []reaction{cut, dark}, []reaction{dark}, 0, nil},
		{"always refused", []reaction{refuses}, []reaction{refuses}, 0, nil},
		{"refused elsewhere", []reaction{cut, away}, []reaction{refuses}, 0, nil},
		{"always cut", []reaction{cut}, []reaction{cut}, 0, nil},
		{"a stranger, then refused", []reaction{says("220 mail is welcome here\r\n"), refuses}, []reaction{away}, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := &answers{given: map[string][]reaction{"first": tc.first, "second": tc.second}}
				cfg := testConfig()
				cfg.Jitter = func() float64 { return 0.5 } // each pause has its nominal length
				w := startWorker(t, cfg, 1, network, "first", "second")
				if tc.want != nil {
					if took := took(t, w.news.news, "refused"); took > tc.within {
						t.Errorf("it took %v", took)
					}
				}
				time.Sleep(10 * time.Minute)
				expect(t, "worker", w.news.news, tc.want...)
				if dials := network.dials.Load() / 2; dials < 30 || dials > 100 {
					t.Errorf("it has dialled %d times", dials)
				}
				w.stop()
			})
		})
	}
}

func TestDeserted(t *testing.T) {
	listens := takes(func(*memoryConn) {})
	for _, tc := range []struct {
		name          string
		first, second reaction
		want          bool
	}{
		{"refused", refuses, refuses, true},
		{"refused where it is known", refuses, unknown, true},
		{"known nowhere", unknown, unknown, false},
		{"taken", listens, listens, false},
		{"taken at one", refuses, listens, false},
		{"no answer of one", dark, refuses, false},
		{"no way to one", away, refuses, false},
		{"no answer", dark, dark, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := &answers{given: map[string][]reaction{"first": {tc.first}, "second": {tc.second}}}
				w := NewWorker(testConfig(), 1, network, []string{"first", "second"}, workerNews{newNews()}, well)
				began := time.Now()
				if got := w.IsHeadPortClosed(t.Context()); got != tc.want {
					t.Errorf("got %v", got)
				}
				if took := time.Since(began); took > refusalTimeout {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}
