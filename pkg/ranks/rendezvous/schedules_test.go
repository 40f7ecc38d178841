package rendezvous

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

var (
	schedulesFlag = flag.Int("schedules", usual, "how many schedules TestSchedules goes through")
	seedFlag      = flag.Uint64("seed", 0, "the only schedule that TestSchedules goes through")
)

// TestSchedules verifies for random orders and failures that no rank leaves a fence before all have
// entered it, that stored data is returned, and that all waiting ranks are informed of ranks that
// will never arrive.
func TestSchedules(t *testing.T) {
	first, last := uint64(1), uint64(*schedulesFlag)
	if *seedFlag > 0 {
		first, last = *seedFlag, *seedFlag
	}
	for seed := first; seed <= last && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { play(t, seed) })
	}
}

// rounds is the number of fences in a schedule.
const rounds = 4

// late is the time after which a schedule counts as hanging.
const late = time.Hour

// drama is one schedule.
type drama struct {
	t     *testing.T
	draw  func(n int) int
	head  *Head
	nodes []*Node
	world Layout

	// The rank that ends instead of entering its fence, and the round in which it does; with its node
	// if lost is set. -1: none.
	victim, round int
	lost          bool
	stopNode      context.CancelFunc

	mu      sync.Mutex
	entered [rounds]int
}

func play(t *testing.T, seed uint64) {
	var mu sync.Mutex
	source := rand.New(rand.NewPCG(seed, 7))
	d := &drama{t: t, victim: -1, draw: func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return source.IntN(n)
	}}
	var places []NodeRanks
	ranks := 0
	for node := range 2 + d.draw(3) {
		place := NodeRanks{Node: node, Host: fmt.Sprintf("n%d", node)}
		for range d.draw(4) { // possibly none
			place.Ranks = append(place.Ranks, ranks)
			ranks++
		}
		places = append(places, place)
	}
	d.world = NewLayout(places)
	if ranks > 1 && d.draw(3) == 0 {
		d.victim, d.round = d.draw(ranks), d.draw(rounds)
		d.lost = d.draw(2) == 0 && d.world.nodeOfRank(d.victim).Node > 0
	}
	d.head = NewHead(d.world, zap.NewNop())

	ctx, cancel := context.WithCancel(context.Background())
	var daemons, programs sync.WaitGroup
	var doors []door
	dials := d.byConnections(ctx, &daemons)
	for node, place := range places {
		n := NewNode(Config{Self: place, Layout: func() Layout { return d.world },
			Log: zap.NewNop(), Dial: dials(node), AbortJob: func(int, int, string) {}})
		d.nodes = append(d.nodes, n)
		door := door{guests: make(chan net.Conn), closed: make(chan struct{})}
		living, stop := context.WithCancel(ctx)
		if d.victim >= 0 && slices.Contains(place.Ranks, d.victim) {
			d.stopNode = stop
		}
		daemons.Go(func() { n.Run(living, door); stop() })
		doors = append(doors, door)
	}
	for rank, place := range d.world.nodeByRank {
		programs.Go(func() { d.rank(ctx, rank, doors[place.Node]) })
	}
	programs.Wait()
	cancel()
	daemons.Wait()
	if t.Failed() {
		t.Logf("-seed=%d: victim %d in round %d, node lost: %v", seed, d.victim, d.round, d.lost)
	}
}

// byConnections connects nodes by connections that break.
func (d *drama) byConnections(ctx context.Context,
	daemons *sync.WaitGroup) func(int) func(context.Context) (io.ReadWriteCloser, error) {
	breaks := d.draw(2) == 0
	return func(node int) func(context.Context) (io.ReadWriteCloser, error) {
		return func(context.Context) (io.ReadWriteCloser, error) {
			if ctx.Err() != nil || breaks && d.draw(5) == 0 {
				return nil, syscall.ECONNREFUSED
			}
			ours, theirs := net.Pipe()
			daemons.Go(func() { d.head.ServeNode(ctx, node, theirs) })
			if breaks {
				time.AfterFunc(time.Duration(d.draw(500))*time.Millisecond, func() { _ = ours.Close() })
			}
			return ours, nil
		}
	}
}

// rank runs one rank.
func (d *drama) rank(ctx context.Context, rank int, door door) {
	ours, theirs := net.Pipe()
	door.guests <- theirs
	c, err := NewClient(ctx, ours, &rank)
	if err != nil {
		d.t.Errorf("rank %d: %v", rank, err)
		return
	}
	defer c.Close()
	for round := range rounds {
		ctxutil.SleepContext(ctx, time.Duration(d.draw(200))*time.Millisecond)
		if rank == d.victim && round == d.round {
			d.end(rank)
			return
		}
		key := fmt.Sprint("key-", round)
		if err := errors.Join(c.PutValue(ctx, key, []byte(fmt.Sprint(rank))),
			c.CommitValues(ctx)); err != nil && !d.doomed(rank, round, err) {
			d.t.Errorf("rank %d puts: %v", rank, err)
		}
		if d.draw(3) == 0 {
			d.get(ctx, c, rank, round)
		}
		if !d.fence(ctx, c, rank, round) {
			return
		}
		d.get(ctx, c, rank, round)
	}
}

// end ends the victim, or its node.
func (d *drama) end(rank int) {
	node := d.world.nodeOfRank(rank).Node
	if !d.lost {
		d.nodes[node].ReportRankEnd(rank, "it is over")
		return
	}
	d.stopNode()
	d.head.MarkNodeLost(node, "it is over")
}

// doomed reports whether an error is the expected consequence of the victim's end.
func (d *drama) doomed(rank, round int, err error) bool {
	mate := d.lost && d.world.nodeOfRank(rank) == d.world.nodeOfRank(d.victim) // its own node has ended
	return d.victim >= 0 && (round >= d.round || d.lost) &&
		(mate || strings.Contains(err.Error(), "it is over") || d.lost &&
			strings.Contains(err.Error(), "its node is lost"))
}

// fence enters a round's fence, sometimes more than once, and reports whether all have entered.
func (d *drama) fence(ctx context.Context, c *Client, rank, round int) bool {
	d.mu.Lock()
	d.entered[round]++
	d.mu.Unlock()
	var err error
	for patience := late; ; patience = late {
		if d.draw(4) == 0 {
			patience = time.Duration(1+d.draw(100)) * time.Millisecond
		}
		err = c.AwaitFence(ctx, "", patience)
		if patience == late || !errors.Is(err, ErrTimeout) {
			break
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil && !d.doomed(rank, round, err):
		d.t.Errorf("rank %d cannot pass fence %d: %v", rank, round, err)
	case err == nil && d.entered[round] != len(d.world.nodeByRank):
		d.t.Errorf("rank %d has left fence %d, which %d have entered", rank, round, d.entered[round])
	}
	return err == nil
}

// get gets data that another rank has put in a round.
func (d *drama) get(ctx context.Context, c *Client, rank, round int) {
	owner := d.draw(len(d.world.nodeByRank))
	value, from, err := c.GetValue(ctx, fmt.Sprint("key-", round), fmt.Sprint(owner), late)
	switch {
	case err != nil && !d.doomed(rank, round, err):
		d.t.Errorf("rank %d cannot get of %d what it puts in %d: %v", rank, owner, round, err)
	case err == nil && (string(value) != fmt.Sprint(owner) || from != fmt.Sprint(owner)):
		d.t.Errorf("rank %d got %q of %s, wanted it of %d", rank, value, from, owner)
	}
}

// door is a listener for programs, in memory.
type door struct {
	guests chan net.Conn
	closed chan struct{}
}

func (d door) Accept() (net.Conn, error) {
	select {
	case guest := <-d.guests:
		return guest, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

func (d door) Close() error {
	defer func() { _ = recover() }() // closed twice
	close(d.closed)
	return nil
}

func (d door) Addr() net.Addr { return &net.UnixAddr{} }
