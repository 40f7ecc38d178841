package pairs

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Seat is a node that takes part, as the others reach it.
type Seat struct {
	Rank    int    `json:"rank"`
	Address string `json:"address"`         // host:port of its ear
	Verbs   *Port  `json:"verbs,omitempty"` // nil: it takes no part in transfers by verbs
	NoVerbs string `json:"no_verbs,omitempty"`
}

// Pace is how much is done.
type Pace struct {
	Partners int           // that each node is to meet
	Lasts    time.Duration // one transfer one way
	// Wait is how much longer than the transfers a round may take: to come together, where one has seen the plan later than
	// another, and to find that a partner does not come.
	Wait time.Duration
}

// The paces. A transfer lasts long enough for TCP to have found its pace on any network of a cluster.
var (
	Short = Pace{Partners: 2, Lasts: time.Second, Wait: 10 * time.Second}
	Long  = Pace{Partners: 6, Lasts: 3 * time.Second, Wait: 10 * time.Second}
)

// slot is how long a round may take.
func (p Pace) slot(way Way) time.Duration {
	if way == Verbs {
		return 2*(p.Lasts+toolTime) + p.Wait
	}
	return 2*p.Lasts + p.Wait
}

// Longest is how long all rounds of so many nodes may take, on all ways.
func (p Pace) Longest(nodes int) (all time.Duration) {
	for _, way := range ways {
		all += time.Duration(Rounds(nodes, p.Partners)) * p.slot(way)
	}
	return all
}

// Seated are those of these that take part in the transfers of a way.
func Seated(seats []Seat, way Way) (taking []Seat) {
	for _, seat := range seats {
		if way == TCP || seat.Verbs != nil {
			taking = append(taking, seat)
		}
	}
	return taking
}

// meeting is one round of two.
type meeting struct {
	way      Way
	round    int
	own      Seat
	partner  Seat
	calls    bool // whether we are the one that calls: the one with the lower rank
	lasts    time.Duration
	deadline time.Time
}

// purpose is what connections are for of which the caller sends first (turn 0), or receives.
func (m meeting) purpose(turn int) purpose {
	p := purpose{round: uint16(m.round), turn: uint8(turn), from: uint32(m.partner.Rank)}
	if m.calls {
		p.from = uint32(m.own.Rank)
	}
	if m.way == Verbs {
		p.way = 1
	}
	return p
}

// Take takes part in all rounds, and returns what came to this node in each. All nodes are given the same seats, in the
// same order, and come here at about the same time. Nobody waits for all: two begin when both are there, and where one
// does not come, the other goes on when the time of the round is over. That is counted from the start, so that one who
// has waited is late for nobody else.
func (e *Ear) Take(ctx context.Context, seats []Seat, pace Pace, env []string) (all []Transfer) {
	due := time.Now()
	for _, way := range ways {
		taking := Seated(seats, way)
		self := -1
		for i, seat := range taking {
			if seat.Rank == e.rank {
				self = i
			}
		}
		for round := range Rounds(len(taking), pace.Partners) {
			due = due.Add(pace.slot(way))
			if self < 0 {
				continue
			}
			partner := Partner(len(taking), round, self)
			if partner == self {
				continue
			}
			m := meeting{way, round, taking[self], taking[partner], self < partner, pace.Lasts, due}
			t := Transfer{Way: way, Round: round, From: taking[partner].Rank, To: e.rank}
			rate, err := e.meet(ctx, m, env)
			if ctx.Err() != nil {
				return all
			}
			if t.Rate = rate; err != nil {
				t.Rate, t.Err = 0, err.Error()
				_, t.Lost = errors.AsType[*lostError](err)
			}
			all = append(all, t)
		}
	}
	return all
}

var errNobody = errors.New("it did not come, or not in time")

// lostError is that a partner could not be reached.
type lostError struct {
	address string
	err     error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("no connection to %s: %s", e.address, reason(e.err))
}

// meet is one round of this node: it sends and receives. It returns the rate of what came.
func (e *Ear) meet(ctx context.Context, m meeting, env []string) (rate float64, err error) {
	ctx, cancel := context.WithDeadlineCause(ctx, m.deadline, errNobody)
	defer cancel()
	if m.way == Verbs {
		return e.verbs(ctx, m, env)
	}
	for turn := range 2 {
		conns, err := e.connect(ctx, m, turn, streams)
		if err != nil {
			return 0, err
		}
		if m.calls == (turn == 0) {
			err = send(ctx, conns)
		} else {
			rate, err = receive(ctx, conns, m.lasts)
		}
		closeAll(conns)
		if err != nil {
			return 0, err
		}
	}
	return rate, nil
}

// connect makes connections to the partner, or waits for the partner to make them.
func (e *Ear) connect(ctx context.Context, m meeting, turn, count int) (conns conns, err error) {
	if !m.calls {
		return e.await(ctx, m.purpose(turn), count)
	}
	conns, err = e.call(ctx, m.partner.Address, m.purpose(turn), count)
	if err != nil && context.Cause(ctx) == nil {
		return nil, &lostError{m.partner.Address, err}
	}
	return conns, err
}
