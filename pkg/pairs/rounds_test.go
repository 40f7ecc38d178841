package pairs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a node's network, in the memory of a test in whose bubble time is not real. It sends so many bytes per second,
// over all its connections.
type wire struct {
	*cable
	rate float64
	deaf bool // connections come to it, and it does not know

	mu   sync.Mutex
	next time.Time // when the next bytes go
}

// cable has the listeners of all nodes, by their addresses.
type cable struct {
	mu    sync.Mutex
	doors map[string]*door
}

func (w *wire) Listen() (net.Listener, error) {
	w.cable.mu.Lock()
	defer w.cable.mu.Unlock()
	d := &door{wire: w, address: fmt.Sprint("node:", len(w.doors)), comes: make(chan net.Conn, 1000), shut: make(chan struct{})}
	w.doors[d.address] = d
	return d, nil
}

func (w *wire) Dial(_ context.Context, address string) (net.Conn, error) {
	w.cable.mu.Lock()
	defer w.cable.mu.Unlock()
	d := w.doors[address]
	if d == nil {
		return nil, syscall.ECONNREFUSED
	}
	ours, theirs := net.Pipe()
	d.comes <- &line{theirs, d.wire}
	return &line{ours, w}, nil
}

type door struct {
	wire    *wire
	address string
	comes   chan net.Conn
	shut    chan struct{} // closed by Close
	once    sync.Once
}

func (d *door) Network() string { return "memory" }
func (d *door) String() string  { return d.address }
func (d *door) Addr() net.Addr  { return d }

func (d *door) Accept() (net.Conn, error) {
	comes := d.comes
	if d.wire.deaf {
		comes = nil
	}
	select {
	case conn := <-comes:
		return conn, nil
	case <-d.shut:
		return nil, net.ErrClosed
	}
}

func (d *door) Close() error {
	d.once.Do(func() { close(d.shut) })
	d.wire.cable.mu.Lock()
	defer d.wire.cable.mu.Unlock()
	delete(d.wire.doors, d.address)
	for len(d.comes) > 0 {
		_ = (<-d.comes).Close()
	}
	return nil
}

type line struct {
	net.Conn
	wire *wire
}

func (l *line) Write(data []byte) (sent int, err error) {
	for sent < len(data) && err == nil {
		piece := data[sent:min(len(data), sent+8<<10)]
		l.wire.mu.Lock()
		if now := time.Now(); l.wire.next.Before(now) {
			l.wire.next = now
		}
		l.wire.next = l.wire.next.Add(time.Duration(float64(len(piece)) / l.wire.rate * float64(time.Second)))
		until := time.Until(l.wire.next)
		l.wire.mu.Unlock()
		time.Sleep(until)
		var n int
		n, err = l.Conn.Write(piece)
		sent += n
	}
	return sent, err
}

// node is one that takes part in a test.
type node struct {
	*Ear
	Seat
}

// team is nodes with these networks, whose ears are open.
func team(t *testing.T, host string, networks ...Network) (nodes []node, seats []Seat) {
	t.Helper()
	for rank, network := range networks {
		ear, err := Listen(network, []byte("secret"), rank)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ear.Close)
		nodes = append(nodes, node{ear, Seat{Rank: rank, Address: host + ":" + ear.Port()}})
		seats = append(seats, nodes[rank].Seat)
	}
	return nodes, seats
}

// play has the nodes take part, each with the same seats.
func play(ctx context.Context, nodes []node, seats []Seat, pace Pace, env []string) (all []Transfer) {
	each := make([][]Transfer, len(nodes))
	var playing sync.WaitGroup
	for i, node := range nodes {
		playing.Go(func() { each[i] = node.Take(ctx, seats, pace, env) })
	}
	playing.Wait()
	return slices.Concat(each...)
}

// Rates of the tests' wires, in bytes per second.
const (
	fast = 8e6
	slow = 1e6
)

func wires(rates ...float64) (all []Network) {
	shared := &cable{doors: make(map[string]*door)}
	for _, rate := range rates {
		all = append(all, &wire{cable: shared, rate: rate})
	}
	return all
}

func TestWhoIsSlow(t *testing.T) {
	for _, tc := range []struct {
		name  string
		rates []float64
		pace  Pace
		want  int // rank; -1: nobody
	}{
		{"one alone", []float64{fast}, Short, -1},
		{"two", []float64{fast, slow}, Short, -1},
		{"three", []float64{fast, slow, fast}, Short, 1},
		{"five", []float64{fast, fast, fast, fast, slow}, Short, 4},
		{"five, for long", []float64{slow, fast, fast, fast, fast}, Long, 0},
		{"none of five", []float64{fast, fast, fast, fast, fast}, Short, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, seats := team(t, "node", wires(tc.rates...)...)
				began := time.Now()
				all := play(t.Context(), nodes, seats, tc.pace, nil)
				// Where all come, nobody waits.
				if took, least := time.Since(began), time.Duration(2*Rounds(len(nodes), tc.pace.Partners))*tc.pace.Lasts; took < least || took > least*11/10 {
					t.Errorf("it took %s, and not %s", took, least)
				}
				j := Judge(TCP, all)
				found := -1
				for _, node := range j.Slow {
					found = node.Rank
				}
				if found != tc.want || len(j.Slow) > 1 || len(j.Odd) > 0 {
					t.Errorf("%+v of %+v", j, all)
				}
				for _, one := range all {
					if want := tc.rates[one.From] / 1e9; one.Err != "" || math.Abs(one.Rate/want-1) > 0.1 {
						t.Errorf("it sends %g GB/s: %+v", want, one)
					}
				}
			})
		})
	}
}

// One that hears nobody, and one that is not there, are found in the time of their rounds; the others meet.
func TestWhoDoesNotCome(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes func(nodes []node) []node // part
		says  string
		lost  bool
	}{
		{"deaf", func(nodes []node) []node { return nodes }, "no connection to node:4: no answer within 5s", true},
		{"gone", func(nodes []node) []node { nodes[4].Close(); return nodes[:4] }, "no connection to node:4: connection refused", true},
		{"hanging", func(nodes []node) []node { return nodes[:4] }, errNobody.Error(), false},
		{"late", func(nodes []node) []node { return nodes }, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				networks := wires(fast, fast, fast, fast, fast)
				networks[4].(*wire).deaf = tc.name == "deaf"
				nodes, seats := team(t, "node", networks...)
				playing := tc.takes(nodes)
				began := time.Now()
				var lagging sync.WaitGroup
				var told []Transfer
				if tc.name == "late" {
					playing = nodes[:4]
					lagging.Go(func() {
						time.Sleep(Short.Wait - time.Second)
						told = nodes[4].Take(t.Context(), seats, Short, nil)
					})
				}
				all := play(t.Context(), playing, seats, Short, nil)
				lagging.Wait()
				if took := time.Since(began); took > Short.Longest(5) {
					t.Errorf("it took %s", took)
				}
				j := Judge(TCP, append(all, told...))
				if len(j.Odd) > 0 || (len(j.Slow) == 1) != (tc.says != "") {
					t.Fatalf("%+v of %+v", j, all)
				}
				for _, node := range j.Slow {
					if node.Rank != 4 || len(node.With) != 3 || node.Lost() != tc.lost || node.With[0].Err != tc.says {
						t.Errorf("%+v", node)
					}
				}
			})
		})
	}
}

// Strangers come first, and get nothing; nor are they in the way.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		networks := wires(fast, fast, fast)
		nodes, seats := team(t, "node", networks[:2]...)
		var coming sync.WaitGroup
		for _, says := range []string{"", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("x", purposeSize+challengeSize+proofSize)} {
			for _, seat := range seats {
				conn, err := networks[2].Dial(t.Context(), seat.Address)
				if err != nil {
					t.Fatal(err)
				}
				coming.Go(func() { _, _ = io.WriteString(conn, says) })
				coming.Go(func() {
					if heard, _ := io.ReadAll(conn); len(heard) > challengeSize {
						t.Errorf("a stranger that says %.8q hears %q", says, heard)
					}
				})
			}
		}
		wrong, err := Listen(networks[2], []byte("another secret"), 2)
		if err != nil {
			t.Fatal(err)
		}
		defer wrong.Close()
		if _, err := wrong.call(t.Context(), seats[1].Address, purpose{}, 1); err == nil {
			t.Error("somebody with another secret is let in")
		}
		if _, err := nodes[0].call(t.Context(), "node:"+wrong.Port(), purpose{}, 1); err == nil {
			t.Error("somebody with another secret is called")
		}
		for _, one := range play(t.Context(), nodes, seats, Short, nil) {
			if one.Err != "" {
				t.Errorf("%+v", one)
			}
		}
		coming.Wait()
	})
}

// loopback is TCP on this machine.
type loopback struct{}

func (loopback) Listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

func (loopback) Dial(ctx context.Context, address string) (net.Conn, error) {
	var dial net.Dialer
	return dial.DialContext(ctx, "tcp", address)
}

// brief is what takes no longer than it must.
var brief = Pace{Partners: 2, Lasts: 20 * time.Millisecond, Wait: time.Minute}

func TestByTCP(t *testing.T) {
	nodes, seats := team(t, "127.0.0.1", loopback{}, loopback{}, loopback{})
	all := play(t.Context(), nodes, seats, brief, nil)
	if len(all) != 6 {
		t.Errorf("%d transfers", len(all))
	}
	for _, one := range all {
		if one.Err != "" || one.Rate <= 0 {
			t.Errorf("%+v", one)
		}
	}
}

func TestCancelled(t *testing.T) {
	nodes, seats := team(t, "127.0.0.1", loopback{}, loopback{}, loopback{})
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(errors.New("told to end")) })
	began := time.Now()
	if all := play(ctx, nodes, seats, Pace{Partners: 2, Lasts: time.Hour, Wait: time.Hour}, nil); len(all) > 0 || time.Since(began) > time.Minute {
		t.Errorf("%+v after %s", all, time.Since(began))
	}
}

// The two sides run the tool, one after the other in both roles; who has none takes no part.
func TestVerbs(t *testing.T) {
	for _, tc := range []struct{ how, says string }{{"well", ""}, {"no card", "Unable to find the Infiniband/RoCE device"}} {
		t.Run(tc.how, func(t *testing.T) {
			nodes, seats := team(t, "127.0.0.1", loopback{}, loopback{}, loopback{})
			seats[0].Verbs = &Port{Tool: os.Args[0], Device: "mlx5_0", Number: 1}
			seats[2].Verbs = seats[0].Verbs
			all := play(t.Context(), nodes, seats, brief, append(os.Environ(), standsIn+"="+tc.how))
			verbs := slices.DeleteFunc(all, func(one Transfer) bool { return one.Way != Verbs })
			if len(verbs) != 2 {
				t.Fatalf("%+v", all)
			}
			for _, one := range verbs {
				if one.From+one.To != 2 || tc.says == "" && (one.Err != "" || one.Rate != 98.02/8) || !strings.Contains(one.Err, tc.says) && one.To == 2 {
					t.Errorf("%+v", one)
				}
			}
		})
	}
}
