package request

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/lifeline"
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
	// orderSize is how many bytes of commands go into one record.
	orderSize = 256 << 10
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

	// These are owned by Run.
	there  bool      // a listing has shown Exec
	looked time.Time // when last
	sent   int       // orders so far
	orders map[int][]*asked
}

// asked is one request, as the head knows it.
type asked struct {
	id requestID

	// These are guarded by Head's mu.
	stage  stage
	called bool      // a listing of Control has shown its call
	since  time.Time // announced
	seen   time.Time // or heard, or announced, last
	heard  time.Time // last sign over the connection
	hung   bool      // the connection's end says that the caller has gone

	// These are owned by Run.
	order    Order
	ranks    []int // who runs it, in order; none where it is refused
	missing  map[int]bool
	beat     int           // the newest that was shown
	told     time.Time     // the newest sign over the connection that was noticed
	quiet    time.Duration // looked for a sign, and saw none
	canceled bool
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
	return &Head{
		Daemon: node.Daemon, node: node, team: team, bell: make(chan struct{}, 1), requests: make(map[requestID]*asked), orders: make(map[int][]*asked),
	}
}

func (h *Head) ring() {
	select {
	case h.bell <- struct{}{}:
	default:
	}
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
		q.heard = q.seen
		if look {
			q.announce()
		}
	})
	if look {
		h.ring()
	}
}

// Hung learns that a caller can't be heard any more. Where its kernel has closed
// the connection, or it said goodbye, it has gone; otherwise its beats by files
// are seen or not.
func (h *Head) Hung(raw lifeline.GuestID, how lifeline.Parting) {
	h.note(idOf(raw), func(q *asked) { q.hung = q.hung || how == lifeline.Left || how == lifeline.Closed })
	h.ring()
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
		for _, id := range requestsCalled(l) {
			before := false
			h.note(id, func(q *asked) {
				before, q.called = q.called, true
				q.announce()
			})
			if before {
				continue
			}
			h.ring()
			h.Go(func(ctx context.Context) { h.Told(h.Dir.Discard(ctx, signal.Control, kindCall+string(id))) })
		}
		return false
	})
}

// await waits for the next look, and tells whether there is one.
func (h *Head) await(ctx context.Context) bool {
	var due <-chan time.Time
	if wait := h.pause(); wait >= 0 {
		due = time.After(wait)
	}
	select {
	case <-ctx.Done():
		return false
	case <-h.bell:
	case <-due:
	}
	return ctx.Err() == nil
}

// pause is how long until the next look; negative where none is due. What was
// announced in vain is not looked for any more.
func (h *Head) pause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	shortest := time.Duration(-1)
	for _, q := range h.requests {
		wait, waited := requestLook, time.Since(q.since)
		switch {
		case q.stage == announced && waited > announcedTime:
			q.stage = unknown
			continue
		case q.stage == announced:
			wait = min(max(firstLook, waited/2), requestLook)
		case q.stage != taken:
			continue
		}
		if shortest < 0 || wait < shortest {
			shortest = wait
		}
	}
	return shortest
}

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
	return requestsShown(names), err
}

// heed does what follows from a look.
func (h *Head) heed(ctx context.Context, all map[requestID]shown) {
	fresh := h.take(ctx, h.unread(all))
	canceled := h.judge(all)
	h.give(ctx, fresh, canceled)
	h.discardOrders()
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

// take reads requests, and answers who runs them or why nobody does. One that
// can't be read for now is left for the next look.
func (h *Head) take(ctx context.Context, unread []*asked) (fresh []*asked) {
	ctx, cancel := h.within(ctx)
	defer cancel()
	records, errs := make([]requestRecord, len(unread)), make([]error, len(unread))
	var reads errgroup.Group
	reads.SetLimit(readsAtOnce)
	for i, q := range unread {
		reads.Go(func() error {
			errs[i] = h.Dir.ReadOwned(ctx, signal.Exec, q.id.name(whatRequest), &records[i])
			return nil
		})
	}
	_ = reads.Wait()
	for i, q := range unread {
		_, hangs := errors.AsType[*signal.StallError](errs[i])
		if hangs || signal.Absent(errs[i]) && time.Since(q.since) < absentTime {
			continue
		}
		q.order = records[i].Order
		h.answer(q, errs[i])
		fresh = append(fresh, q)
	}
	return fresh
}

// answer tells who runs a request or why nobody does; err is why it can't be read.
func (h *Head) answer(q *asked, err error) {
	if err == nil && h.Life.Err() != nil {
		err = errors.New("the run is ending")
	}
	if err == nil {
		q.ranks, err = h.team.Choose(q.order.Nodes)
	}
	if err == nil && len(q.order.Argv) == 0 {
		err = errors.New("there is no command")
	}
	var answer takenRecord
	if err != nil {
		q.ranks, answer.Refused = nil, err.Error()
		h.Log.Warn("a request from outside is refused", zap.String("request", string(q.id)), zap.Error(err))
	}
	q.missing = make(map[int]bool)
	for _, rank := range q.ranks {
		q.missing[rank] = true
		answer.Nodes = append(answer.Nodes, runner{Rank: rank, Host: h.team.CallName(rank)})
	}
	h.mu.Lock()
	q.stage = taken
	h.mu.Unlock()
	h.Trail.Event(trail.Request, trail.Fields{Request: string(q.id), Nodes: new(len(q.ranks)), OK: new(err == nil)})
	h.publish(q.id.name(whatTaken), &answer)
}

// publish publishes what the head says of a request; nobody waits for it.
func (h *Head) publish(name string, record signal.Record) {
	h.Go(func(ctx context.Context) { h.Told(h.Dir.Publish(ctx, signal.Exec, name, record, false)) })
}

// judge takes in what has become of the requests that are taken, and returns those
// that are to be ended early.
func (h *Head) judge(all map[requestID]shown) (canceled []*asked) {
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
		if beat := s.beat(); beat > q.beat || q.heard.After(q.told) {
			q.beat, q.told, q.quiet = max(q.beat, beat), q.heard, 0
		}
		maps.DeleteFunc(q.missing, func(rank int, _ bool) bool { return s[end(h.Dir, rank)] })
		h.tellLost(q)
		gone := q.hung || q.quiet > callerSilence
		switch {
		case len(q.missing) == 0 && gone:
			h.requests[id] = &asked{id: id, stage: over, called: q.called, seen: now}
			h.Go(func(ctx context.Context) { h.Told(h.Dir.Discard(ctx, signal.Exec, s.names(id)...)) })
		case len(q.missing) > 0 && (gone || s[whatCancel]) && !q.canceled:
			q.canceled = true
			canceled = append(canceled, q)
		}
	}
	return canceled
}

// tellLost tells which nodes will not answer, once that is all that is waited
// for: the job goes on without them.
func (h *Head) tellLost(q *asked) {
	if len(q.missing) == 0 {
		return
	}
	absent, lost := h.team.Absent(), slices.Sorted(maps.Keys(q.missing))
	if slices.ContainsFunc(lost, func(rank int) bool { return !slices.Contains(absent, rank) }) {
		return
	}
	clear(q.missing)
	h.publish(q.id.name(whatLost), &lostRecord{Ranks: lost})
}

// give has the nodes begin what is fresh and end what is canceled: the workers by
// records in Control, this one at once.
func (h *Head) give(ctx context.Context, fresh, canceled []*asked) {
	var orders ordersRecord
	var of []*asked
	size := 0
	send := func() {
		h.send(ctx, &orders, of)
		orders, of, size = ordersRecord{}, nil, 0
	}
	for _, q := range fresh {
		command := start{ID: q.id, Argv: q.order.Argv, Env: q.order.Env, Ranks: q.ranks}
		if slices.Contains(q.ranks, 0) {
			h.node.begin(command)
		}
		if !q.needsWorkers() {
			continue
		}
		length := len(strings.Join(slices.Concat(command.Argv, command.Env), ""))
		if size > 0 && size+length > orderSize {
			send()
		}
		size += length
		orders.Start, of = append(orders.Start, command), append(of, q)
	}
	for _, q := range canceled {
		h.node.cancel(q.id)
		if q.needsWorkers() {
			orders.Cancel, of = append(orders.Cancel, q.id), append(of, q)
		}
	}
	send()
}

func (q *asked) needsWorkers() bool { return len(q.ranks) > 0 && q.ranks[len(q.ranks)-1] > 0 }

// send publishes orders for these requests, and has the workers look who are still to
// answer.
func (h *Head) send(ctx context.Context, orders *ordersRecord, of []*asked) {
	if len(of) == 0 {
		return
	}
	h.sent++
	h.orders[h.sent] = of
	ctx, cancel := h.within(ctx)
	defer cancel()
	h.Told(h.Dir.Publish(ctx, signal.Control, ordersName(h.sent), orders, false))
	nudged := make(map[int]bool)
	for _, q := range of {
		maps.Copy(nudged, q.missing)
	}
	for rank := range nudged {
		h.team.NudgeRank(rank)
	}
}

// discardOrders removes the orders that all have carried out: they may hold what
// is not to stay.
func (h *Head) discardOrders() {
	for number, of := range h.orders {
		if slices.ContainsFunc(of, func(q *asked) bool { return len(q.missing) > 0 }) {
			continue
		}
		delete(h.orders, number)
		h.Go(func(ctx context.Context) { h.Told(h.Dir.Discard(ctx, signal.Control, ordersName(number))) })
	}
}

// Tidy removes, at the end of the run, what orders are left.
func (h *Head) Tidy(ctx context.Context) {
	for _, number := range ordersGiven(h.Control.Last()) {
		h.Told(h.Dir.Discard(ctx, signal.Control, ordersName(number)))
	}
}
