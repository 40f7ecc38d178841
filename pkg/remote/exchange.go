package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Team is what the head knows of the nodes.
type Team interface {
	Hosts() (ranks []int, hosts []string) // the nodes of the driver's, in their order
	Address(rank int) string              // where others reach it; "" where that is not known
	// Summon has a node call, by its lifeline; its error says why that can't be.
	Summon(rank int) error
}

// Exchange is the side of the head: it joins who asks and who is asked.
type Exchange struct {
	team Team
	node *Node

	agents atomic.Int32 // being served

	mu      sync.Mutex
	waiting map[int][]chan Conn // by rank, for a node that was summoned; guarded by mu
	busy    map[int][]Conn      // what nodes run commands by; guarded by mu
	broken  []string            // the hosts where commands were killed, or have lost their agents; guarded by mu
}

// NewExchange returns the exchange of a head, whose own node's agents it serves, too.
func NewExchange(team Team, node *Node) *Exchange {
	x := &Exchange{team: team, node: node, waiting: make(map[int][]chan Conn), busy: make(map[int][]Conn)}
	node.exchange = x
	return x
}

// Serve serves the connection of a node: that of an agent there, or of one that was summoned.
func (x *Exchange) Serve(ctx context.Context, rank int, conn Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	r, err := asked(conn)
	switch stop(); {
	case err != nil:
		_ = conn.Close()
	case r.Here:
		x.arrived(rank, conn)
	default:
		x.serve(ctx, rank, conn, r)
		_ = conn.Close()
	}
}

// serve serves an agent on a node.
func (x *Exchange) serve(ctx context.Context, from int, agent Conn, r request) {
	x.agents.Add(1)
	defer x.agents.Add(-1)
	rank, err := Find(r.Host, from, x.team)
	if err != nil {
		refuse(agent, err)
		return
	}
	if rank == 0 {
		x.node.run(ctx, agent, r)
		return
	}
	conn, err := x.summon(ctx, rank)
	if err == nil {
		defer x.release(rank, conn)
		err = ask(conn, r)
	}
	if err != nil {
		refuse(agent, fmt.Errorf("cannot run a command on %s: %w", r.Host, err))
		return
	}
	if ended := join(ctx, agent, conn); ended.Code > 128 {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.broken = append(x.broken, r.Host)
	}
}

const (
	// settleTime is for how long a driver's end waits for its agents', which have ended before it: an mpirun whose agent is
	// killed may end sooner than this daemon comes to see that.
	settleTime = time.Second
	settlePace = 2 * time.Millisecond
)

// Broken says where commands were killed, or cut off from who had asked for them; "" where none was. An mpirun may end well
// nevertheless: that of Open MPI 5 does. It is to be asked when the driver has ended, and waits for who is still served, for
// a second at most: a driver may leave agents behind.
func (x *Exchange) Broken(ctx context.Context) string {
	for end := time.Now().Add(settleTime); x.agents.Load() > 0 && time.Now().Before(end) && pause.For(ctx, settlePace); {
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch hosts := x.broken; len(hosts) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("what it ran on %s by bringupd rsh was killed or cut off", hosts[0])
	default:
		return fmt.Sprintf("what it ran on %s and %d more by bringupd rsh was killed or cut off", hosts[0], len(hosts)-1)
	}
}

const (
	// summonAgain is how long a node has to call until it is summoned once more, and summonTime in all.
	summonAgain = time.Second
	summonTime  = 10 * time.Second
	// upTime is for how long a node may hold no lifeline: a driver may be faster than the first connection.
	upTime  = time.Second
	upAgain = 10 * time.Millisecond
)

var errSilent = errors.New("it does not answer its lifeline")

// summon has a node call, and returns its connection.
func (x *Exchange) summon(ctx context.Context, rank int) (Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, summonTime, errSilent)
	defer cancel()
	came := make(chan Conn, 1)
	x.mu.Lock()
	x.waiting[rank] = append(x.waiting[rank], came)
	x.mu.Unlock()
	for began := time.Now(); ; {
		pace, err := summonAgain, x.team.Summon(rank)
		if err != nil {
			pace = upAgain
		}
		select {
		case conn := <-came:
			return conn, nil
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(pace):
			if time.Since(began) < upTime || err == nil {
				continue
			}
		}
		x.forget(rank, came)
		return nil, err
	}
}

// arrived gives the connection of a node to who waits for it longest.
func (x *Exchange) arrived(rank int, conn Conn) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.waiting[rank]) == 0 {
		_ = conn.Close()
		return
	}
	x.busy[rank] = append(x.busy[rank], conn)
	x.waiting[rank][0] <- conn
	x.waiting[rank] = x.waiting[rank][1:]
}

// forget has nobody wait any more, and closes what has come meanwhile.
func (x *Exchange) forget(rank int, came chan Conn) {
	x.mu.Lock()
	x.waiting[rank] = slices.DeleteFunc(x.waiting[rank], func(other chan Conn) bool { return other == came })
	x.mu.Unlock()
	select {
	case conn := <-came:
		x.release(rank, conn)
	default:
	}
}

// release closes a node's connection.
func (x *Exchange) release(rank int, conn Conn) {
	_ = conn.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.busy[rank] = slices.DeleteFunc(x.busy[rank], func(other Conn) bool { return other == conn })
}

// Lose ends what a node runs that will not be heard of again: its agents are told, which may be waiting for a host that
// says nothing any more. A nil exchange has none.
func (x *Exchange) Lose(rank int) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, conn := range x.busy[rank] {
		_ = conn.Close()
	}
}
