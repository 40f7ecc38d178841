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
	// callerSilence is how long a caller may send no heartbeat. After that its commands are ended.
	callerSilence = 8 * time.Second
	// silentLook is the maximum time between two polls that counts as silence of a caller. A longer
	// interval may be the fault of this daemon or of the file system.
	silentLook = time.Second
	// announcedTime is how long the head polls for an announced request.
	announcedTime = 30 * time.Second
	// requestLook is the polling interval while requests are handled. firstLook is the pause before
	// the first poll for an announced request.
	requestLook = 500 * time.Millisecond
	firstLook   = 5 * time.Millisecond
	// absentTime is how long the head retries to read a request that a listing shows, but that is
	// missing or incomplete. A request with the nonce of another attempt never becomes valid.
	absentTime = 2 * time.Second
	// lostCode is the exit code for a lost node. It is the same as that of bringupd itself.
	lostCode = 76
)

// Team provides information about the run's nodes to the head.
type Team interface {
	// Choose returns the sorted indices of the nodes that words select: see [Order].
	Choose(words []string) ([]int, error)
	// CallName returns the host of a node, which is the prefix of its output.
	CallName(rank int) string
	// Absent returns the nodes that will not answer although the run continues.
	Absent() []int
	// NudgeRank makes a worker poll the control directory now, if it has a peer link.
	NudgeRank(rank int)
}

// Head is the head's side. It accepts requests, makes the nodes run them (including the head
// itself), and removes their files.
type Head struct {
	Daemon
	node *Node
	team Team
	bell chan struct{} // buffered by one: poll now

	mu       sync.Mutex
	requests map[requestID]*asked // guarded by mu

	// The following fields are used only by the goroutine of FollowRequests.
	there  bool      // a listing has shown the exec directory
	looked time.Time // time of the last poll
}

// asked is the head's state of one request.
type asked struct {
	id requestID

	// The following fields are guarded by Head's mu.
	stage  stage
	called bool          // a listing of the control directory has shown its call
	since  time.Time     // when it was announced
	seen   time.Time     // time of the last event
	quiet  time.Duration // time since the last heartbeat of the caller, counted between polls
	hung   bool          // the caller has closed its connection

	// The following fields are used by the goroutine of FollowRequests, and by [Head.take] for the
	// requests that it handles.
	missing  map[int]bool // nodes that run the command and have not answered; empty after a refusal
	beat     int          // number of the newest heartbeat in a listing
	canceled bool
	leaving  bool         // it is finished; the next listing shows all its remaining files
	orders   []string     // names of its orders in the control directory
	writing  atomic.Int32 // number of pending writes of the head for it
}

// stage is the progress of a request.
type stage int

const (
	unknown   stage = iota // the caller is connected, or a listing has shown a file of the request
	announced              // the head polls for it
	taken                  // the head has answered: the command runs, or is refused
	over                   // its files are removed, but an old listing may still show them
)

// NewHead returns the head's side. node is the head's own [Node]. Polling begins with
// FollowRequests.
func NewHead(node *Node, team Team) *Head {
	return &Head{Daemon: node.Daemon, node: node, team: team, bell: make(chan struct{}, 1), requests: make(map[requestID]*asked)}
}

// note calls sign with the state of a request, which it creates if necessary. mu is held during the
// call.
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

// announce makes the head poll for a request, unless it does already. mu must be held.
func (q *asked) announce() {
	if q.stage == unknown {
		q.stage, q.since = announced, q.seen
	}
}

// Called handles a heartbeat or a notification (look) on a caller's connection. It implements
// [lifeline.Callers].
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

// Hung handles the end of a caller's connection. It implements [lifeline.Callers]. After a goodbye
// message, or if the caller's kernel has closed the connection, the caller has gone. Otherwise its
// heartbeat files decide.
func (h *Head) Hung(raw lifeline.GuestID, how lifeline.Parting) {
	h.note(idOf(raw), func(q *asked) { q.hung = q.hung || how == lifeline.Left || how == lifeline.Closed })
	pause.Ring(h.bell)
}

// FollowRequests handles requests from outside the job until ctx ends.
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

// followCalls watches the control directory for announced requests, makes the head poll the exec
// directory for them, and removes the announcements.
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

// await waits until the next poll is due. It returns false if ctx has ended.
func (h *Head) await(ctx context.Context) bool {
	select {
	case <-ctx.Done():
	case <-h.bell:
	case <-time.After(h.pause()):
	}
	return ctx.Err() == nil
}

// pause returns the time until the next poll, or [forever] if none is due. It drops announced
// requests that were not found in time.
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

// look lists the exec directory, and groups its names by request. It does not open the directory
// before a listing of the run directory has shown it, because the first caller makes it, and a
// client may cache that the name is missing.
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

// heed handles the result of a poll.
func (h *Head) heed(ctx context.Context, all map[requestID]shown) {
	h.take(ctx, h.unread(all))
	h.judge(all)
}

// unread returns the announced requests in a listing that were not read yet. It also removes the
// state of requests that no listing can show any more.
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

// take reads requests, publishes the head's answers, and starts the commands. A request that cannot
// be read now is read at the next poll.
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

// answer publishes the nodes that run a request, and starts the command there; or it publishes the
// reason for a refusal. err is the error of reading the request, or nil.
func (h *Head) answer(q *asked, order Order, err error) {
	// Select the nodes, or find the reason for a refusal.
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
	// Publish the answer.
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
	// Start the command on the head itself, and order the workers to start it.
	begin := startRecord{ID: q.id, Argv: order.Argv, Env: order.Env, Own: order.Own, Ranks: ranks}
	if q.missing[0] {
		h.node.begin(begin)
	}
	h.order(q, "", func(ctx context.Context, name string) error {
		return h.Dir.Publish(ctx, signal.Control, name, &begin, false)
	})
}

// order orders the workers that have not answered to start a request or to cancel it (what). It
// writes the order to the control directory, and notifies the workers to poll it.
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

// write runs the given function, which writes a file of the request, in the background. The
// request's files are not removed before it has ended.
func (h *Head) write(q *asked, write func(ctx context.Context) error) {
	q.writing.Add(1)
	h.Go(func(ctx context.Context) {
		defer q.writing.Add(-1)
		h.Told(write(ctx))
	})
}

// judge updates the accepted requests after a poll: it cancels the commands of callers that have
// gone, and removes the files of finished requests.
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
		// Count the silence of the caller.
		s := all[id]
		q.quiet += since
		if beat := s.beat(); beat > q.beat {
			q.beat, q.quiet = beat, 0
		}
		// Find the nodes that have answered.
		maps.DeleteFunc(q.missing, func(rank int, _ bool) bool { return s[end(h.Dir, rank)] })
		h.tellLost(q)
		// Cancel the commands if the caller has gone or requests it.
		gone := q.hung || q.quiet > callerSilence
		if len(q.missing) > 0 && (gone || s[whatCancel]) && !q.canceled {
			q.canceled = true
			h.node.cancel(id)
			h.order(q, whatCancel, func(ctx context.Context, name string) error { return h.Dir.Mark(ctx, signal.Control, name) })
		}
		// Remove the files if all nodes have answered.
		if len(q.missing) > 0 || q.writing.Load() > 0 {
			continue
		}
		if len(q.orders) > 0 { // orders may contain secrets
			h.discard(signal.Control, q.orders)
			q.orders = nil
		}
		switch {
		case !gone:
		case !q.leaving: // this listing may lack the newest files: wait for the next one
			q.leaving = true
			pause.Ring(h.bell)
		default:
			h.requests[id] = &asked{id: id, stage: over, called: q.called, seen: now}
			h.discard(signal.Exec, s.names(id))
		}
	}
}

// tellLost publishes the last record of nodes that are lost, if all other nodes have answered,
// because the job continues without them.
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
			if errors.Is(err, signal.ErrTaken) { // its own record is newer than this listing
				return nil
			}
			return err
		})
	}
	clear(q.missing)
}

// discard removes names from a directory in the background.
func (h *Head) discard(sub string, names []string) {
	h.Go(func(ctx context.Context) { h.Told(h.Dir.Discard(ctx, sub, names...)) })
}

// Tidy removes the remaining orders from the control directory at the end of the run.
func (h *Head) Tidy(ctx context.Context) {
	for id, s := range requestsShown(h.Control.Last().Names(), kindOrder) {
		for what := range s {
			h.Told(h.Dir.Discard(ctx, signal.Control, id.order(what)))
		}
	}
}
