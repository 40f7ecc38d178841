package request

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

const (
	// callerSilence is for how long nothing may be heard of a caller: then what
	// it has asked for is ended.
	callerSilence = 8 * time.Second
	// silentLook is how much of the time before a look counts at most: we may
	// not have looked, for the share's sake or for our own.
	silentLook = time.Second
	// announcedTime is for how long the head looks for a request that it was
	// told of.
	announcedTime = 30 * time.Second
	// requestLook is the pause between two looks while requests are carried out,
	// and firstLook that before the first look for one that is announced.
	requestLook = 500 * time.Millisecond
	firstLook   = 5 * time.Millisecond
	// absentTime is for how long a request that a listing shows may not be there,
	// or not be whole: one that bears another attempt's nonce never is.
	absentTime = 2 * time.Second
	// lostCode is the code of a node that is lost: bringupd's own for it.
	lostCode = 76
)

// Team is what the head knows of the run's nodes.
type Team interface {
	// Choose returns the ranks, in order, that the words of an order mean.
	Choose(words []string) ([]int, error)
	// CallName is how a node's output is told from the others'.
	CallName(rank int) string
	// Absent returns the ranks that will not answer although the run goes on.
	Absent() []int
	// NudgeRank has a worker look at Control now, where that can be done.
	NudgeRank(rank int)
}

// Head is the head's side. It takes requests in, has the nodes carry them out, itself
// among them, and removes what is left of them.
type Head struct {
	Daemon
	node *Node
	team Team
	bell chan struct{} // buffered by one: look now

	mu       sync.Mutex
	requests map[requestID]*asked // guarded by mu

	// These are owned by FollowRequests.
	there  bool      // a listing has shown Exec
	looked time.Time // when last
}

// asked is one request, as the head knows it.
type asked struct {
	id requestID

	// These are guarded by Head's mu.
	stage  stage
	called bool          // a listing of Control has shown its call
	since  time.Time     // announced
	seen   time.Time     // or heard, or announced, last
	quiet  time.Duration // looked for a sign of the caller, and saw none
	hung   bool          // the connection's end says that the caller has gone

	// These are owned by FollowRequests, and by take for what it takes.
	missing  map[int]bool // ranks that run it and have not answered; none where it is refused
	beat     int          // the newest that was shown
	canceled bool
	leaving  bool         // nobody waits for it any more, and the next listing shows all that is left of it
	orders   []string     // in Control, of workers that are missing
	writing  atomic.Int32 // how much the head is still writing for it
}

// stage is how far a request has come.
type stage int

const (
	unknown   stage = iota // its caller is heard, or something of it is shown
	announced              // it is looked for
	taken                  // it is answered, and carried out where it isn't refused
	over                   // nothing of it is left but what an old listing may show
)

// NewHead returns the head's side, which looks at nothing yet; node is the head's own.
func NewHead(node *Node, team Team) *Head {
	return &Head{Daemon: node.Daemon, node: node, team: team, bell: make(chan struct{}, 1), requests: make(map[requestID]*asked)}
}

// note takes in a sign of a request.
func (h *Head) note(id requestID, sign func(*asked)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.requests[id]
	if q == nil {
		q = &asked{id: id}
		h.requests[id] = q
	}
	q.seen = time.Now()
	sign(q)
}

// announce has a request be looked for that nobody looks for yet.
func (q *asked) announce() {
	if q.stage == unknown {
		q.stage, q.since = announced, q.seen
	}
}

// Called takes in a sign of a caller over its connection.
func (h *Head) Called(raw lifeline.GuestID, look bool) {
	h.note(idOf(raw), func(q *asked) {
		q.quiet = 0
		if look {
			q.announce()
		}
	})
	if look {
		pause.Ring(h.bell)
	}
}

// Hung learns that a caller can't be heard any more. Where its kernel has closed
// the connection, or it said goodbye, it has gone; otherwise its beats by files
// are seen or not.
func (h *Head) Hung(raw lifeline.GuestID, how lifeline.Parting) {
	h.note(idOf(raw), func(q *asked) { q.hung = q.hung || how == lifeline.Left || how == lifeline.Closed })
	pause.Ring(h.bell)
}

// FollowRequests heeds what is asked for from outside, until ctx ends.
func (h *Head) FollowRequests(ctx context.Context) {
	h.Go(func(context.Context) { h.followCalls(ctx) })
	refused := ""
	for h.await(ctx) {
		shown, err := h.look(ctx)
		switch {
		case err == nil:
			h.heed(ctx, shown)
		case err.Error() != refused && ctx.Err() == nil:
			refused = err.Error()
			h.Log.Warn("cannot take requests from outside", zap.Error(err))
		}
	}
}

// followCalls has Exec be looked into when Control tells of a request.
func (h *Head) followCalls(ctx context.Context) {
	_, _ = h.Control.Follow(ctx, func(l signal.Listing) bool {
		for id := range requestsShown(l.Names(), kindCall) {
			before := false
			h.note(id, func(q *asked) {
				before, q.called = q.called, true
				q.announce()
			})
			if before {
				continue
			}
			pause.Ring(h.bell)
			h.discard(signal.Control, []string{kindCall + string(id)})
		}
		return false
	})
}

// await waits for the next look, and tells whether there is one.
func (h *Head) await(ctx context.Context) bool {
	select {
	case <-ctx.Done():
	case <-h.bell:
	case <-time.After(h.pause()):
	}
	return ctx.Err() == nil
}

// pause is how long until the next look, or forever where none is due. What was
// announced in vain is not looked for any more.
func (h *Head) pause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	shortest := forever
	for _, q := range h.requests {
		switch waited := time.Since(q.since); {
		case q.stage == announced && waited > announcedTime:
			q.stage = unknown
		case q.stage == announced:
			shortest = min(shortest, max(firstLook, waited/2), requestLook)
		case q.stage == taken:
			shortest = min(shortest, requestLook)
		}
	}
	return shortest
}

const forever = time.Duration(math.MaxInt64)

// look looks at what is asked for. The first caller makes the directory, and nobody
// may look for it by name before a listing has shown it.
func (h *Head) look(ctx context.Context) (map[requestID]shown, error) {
	ctx, cancel := h.within(ctx)
	defer cancel()
	if !h.there {
		names, err := h.Dir.Names(ctx, "")
		if h.there = slices.Contains(names, signal.Exec); !h.there {
			return nil, err
		}
	}
	names, err := h.Dir.OwnedNames(ctx, signal.Exec)
	return requestsShown(names, ""), err
}

// heed does what follows from a look.
func (h *Head) heed(ctx context.Context, all map[requestID]shown) {
	h.take(ctx, h.unread(all))
	h.judge(all)
}

// unread returns the requests that a look shows and nobody has read, and forgets what
// no listing can show any more.
func (h *Head) unread(all map[requestID]shown) (unread []*asked) {
	now := time.Now()
	for id, s := range all {
		h.note(id, func(q *asked) {
			if s[whatRequest] {
				q.announce()
			}
			if s[whatRequest] && q.stage == announced {
				unread = append(unread, q)
			}
		})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.requests, func(_ requestID, q *asked) bool { return q.stage != taken && now.Sub(q.seen) > oldestListing })
	return unread
}

// take reads requests, answers who runs them or why nobody does, and has them
// begun. One that can't be read for now is left for the next look.
func (h *Head) take(ctx context.Context, unread []*asked) {
	ctx, cancel := h.within(ctx)
	defer cancel()
	var reads errgroup.Group
	reads.SetLimit(readsAtOnce)
	for _, q := range unread {
		reads.Go(func() error {
			var record requestRecord
			err := h.Dir.ReadOwned(ctx, signal.Exec, q.id.name(whatRequest), &record)
			if !signal.Stalled(err) && (!signal.Absent(err) || time.Since(q.since) >= absentTime) {
				h.answer(q, record.Order, err)
			}
			return nil
		})
	}
	_ = reads.Wait()
}

// answer tells who runs a request, and has it begun, or tells why nobody does; err is
// why it can't be read.
func (h *Head) answer(q *asked, order Order, err error) {
	var ranks []int
	switch {
	case err != nil:
	case h.Life.Err() != nil:
		err = errors.New("the run is ending")
	case len(order.Argv) == 0:
		err = errors.New("there is no command")
	default:
		ranks, err = h.team.Choose(order.Nodes)
	}
	var answer takenRecord
	if err != nil {
		ranks, answer.Refused = nil, err.Error()
		h.Log.Warn("a request from outside is refused", zap.String("request", string(q.id)), zap.Error(err))
	}
	q.missing = make(map[int]bool)
	for _, rank := range ranks {
		q.missing[rank] = true
		answer.Nodes = append(answer.Nodes, Answer{Rank: rank, Host: h.team.CallName(rank)})
	}
	h.mu.Lock()
	q.stage = taken
	h.mu.Unlock()
	h.Trail.Event(trail.Request, trail.Fields{Request: string(q.id), Nodes: new(len(ranks)), OK: new(err == nil)})
	h.write(q, func(ctx context.Context) error {
		return h.Dir.Publish(ctx, signal.Exec, q.id.name(whatTaken), &answer, false)
	})
	begin := startRecord{ID: q.id, Argv: order.Argv, Env: order.Env, Own: order.Own, Ranks: ranks}
	if q.missing[0] {
		h.node.begin(begin)
	}
	h.order(q, "", func(ctx context.Context, name string) error {
		return h.Dir.Publish(ctx, signal.Control, name, &begin, false)
	})
}

// order has the workers that have not answered begin a request or end it early: each
// look that a nudge makes them take shows the order that is written to Control.
func (h *Head) order(q *asked, what string, write func(ctx context.Context, name string) error) {
	workers := slices.DeleteFunc(slices.Collect(maps.Keys(q.missing)), func(rank int) bool { return rank == 0 })
	if len(workers) == 0 {
		return
	}
	name := q.id.order(what)
	q.orders = append(q.orders, name)
	h.write(q, func(ctx context.Context) error {
		ctx, cancel := h.within(ctx)
		defer cancel()
		err := write(ctx, name)
		for _, rank := range workers {
			h.team.NudgeRank(rank)
		}
		return err
	})
}

// write writes something of a request; nobody waits for it, but what is left of the
// request is removed after it alone.
func (h *Head) write(q *asked, write func(ctx context.Context) error) {
	q.writing.Add(1)
	h.Go(func(ctx context.Context) {
		defer q.writing.Add(-1)
		h.Told(write(ctx))
	})
}

// judge takes in what has become of the requests that are taken: it ends those that
// nobody waits for any more, and removes what is left of those that have ended.
func (h *Head) judge(all map[requestID]shown) {
	now := time.Now()
	since := min(now.Sub(h.looked), silentLook)
	h.looked = now
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, q := range h.requests {
		if q.stage != taken {
			continue
		}
		s := all[id]
		q.quiet += since
		if beat := s.beat(); beat > q.beat {
			q.beat, q.quiet = beat, 0
		}
		maps.DeleteFunc(q.missing, func(rank int, _ bool) bool { return s[end(h.Dir, rank)] })
		h.tellLost(q)
		gone := q.hung || q.quiet > callerSilence
		if len(q.missing) > 0 && (gone || s[whatCancel]) && !q.canceled {
			q.canceled = true
			h.node.cancel(id)
			h.order(q, whatCancel, func(ctx context.Context, name string) error { return h.Dir.Mark(ctx, signal.Control, name) })
		}
		if len(q.missing) > 0 || q.writing.Load() > 0 {
			continue
		}
		if len(q.orders) > 0 { // they may hold what is not to stay
			h.discard(signal.Control, q.orders)
			q.orders = nil
		}
		switch {
		case !gone:
		case !q.leaving: // what was written last may be newer than this listing
			q.leaving = true
			pause.Ring(h.bell)
		default:
			h.requests[id] = &asked{id: id, stage: over, called: q.called, seen: now}
			h.discard(signal.Exec, s.names(id))
		}
	}
}

// tellLost answers for nodes that will not, once no others are waited for: the job
// goes on without them.
func (h *Head) tellLost(q *asked) {
	if len(q.missing) == 0 {
		return
	}
	absent := h.team.Absent()
	for rank := range q.missing {
		if !slices.Contains(absent, rank) {
			return
		}
	}
	for rank := range q.missing {
		lost := &outputRecord{End: &Exit{Code: lostCode, Exit: "lost", Failed: "the node is lost"}}
		h.write(q, func(ctx context.Context) error {
			err := h.Dir.Claim(ctx, signal.Exec, q.id.name(end(h.Dir, rank)), lost)
			if errors.Is(err, signal.ErrTaken) { // it has told its end, which our listing does not show yet
				return nil
			}
			return err
		})
	}
	clear(q.missing)
}

// discard removes names; nobody waits for it.
func (h *Head) discard(sub string, names []string) {
	h.Go(func(ctx context.Context) { h.Told(h.Dir.Discard(ctx, sub, names...)) })
}

// Tidy removes, at the end of the run, what orders are left.
func (h *Head) Tidy(ctx context.Context) {
	for id, s := range requestsShown(h.Control.Last().Names(), kindOrder) {
		for what := range s {
			h.Told(h.Dir.Discard(ctx, signal.Control, id.order(what)))
		}
	}
}
