package daemon

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// requests are what somebody outside has asked the run for. The head looks into
// Exec only while there is one, or one is announced.
type requests struct {
	bell chan struct{} // buffered by one: look now

	mu      sync.Mutex
	awaited map[signal.ExecID]time.Time // announced and not shown yet, and since when; guarded by mu
	heard   map[signal.ExecID]time.Time // last sign over a connection; guarded by mu
	hung    map[signal.ExecID]bool      // the connection's end says that the caller has gone; guarded by mu

	// All of these are owned by followExec.
	known  map[signal.ExecID]*asked
	past   lately[signal.ExecID] // those of which nothing is left, or about to be
	there  bool                  // there is a directory of them
	looked time.Time
	orders int // published so far
	batch  map[int][]signal.ExecID
}

// asked is one of them, as the head follows it.
type asked struct {
	record   signal.ExecRequest
	ranks    []int // nil: refused
	missing  map[int]bool
	lost     bool          // that some will not answer is told
	beat     int64         // the newest that was shown
	heard    time.Time     // the newest sign over the connection
	quiet    time.Duration // looked for a sign, and saw none
	canceled bool
}

func newRequests() *requests {
	return &requests{
		bell: make(chan struct{}, 1), awaited: make(map[signal.ExecID]time.Time), heard: make(map[signal.ExecID]time.Time),
		hung: make(map[signal.ExecID]bool), known: make(map[signal.ExecID]*asked), past: make(lately[signal.ExecID]),
		batch: make(map[int][]signal.ExecID),
	}
}

// lately is what is done with, and when a listing has shown it last: the next may
// be an old one, which shows it again.
type lately[T comparable] map[T]time.Time

// oldestListing is for how long, by far, a client of a share may go on showing
// names that are gone.
const oldestListing = 10 * time.Minute

// fresh returns what is new of the things that a listing shows, which are not the
// next time, and forgets what no listing can show any more.
func (l lately[T]) fresh(things []T, at time.Time) (fresh []T) {
	for _, thing := range things {
		if _, before := l[thing]; !before {
			fresh = append(fresh, thing)
		}
		l[thing] = at
	}
	maps.DeleteFunc(l, func(_ T, shown time.Time) bool { return at.Sub(shown) > oldestListing })
	return fresh
}

const (
	// callerSilence is for how long nothing may be heard of who has asked: then
	// what it has asked for is ended.
	callerSilence = 8 * time.Second
	// silentLook is how much of the time before a look counts at most: we may
	// not have looked, for the share's sake or for our own.
	silentLook = time.Second
	// announcedTime is for how long the head looks for a request that it was
	// told of.
	announcedTime = 30 * time.Second
	// requestLook is the pause between two looks while requests are carried out.
	requestLook = 500 * time.Millisecond
	// absentTime is for how long a request that a listing shows may not be there,
	// or not be whole: one that bears another attempt's nonce never is.
	absentTime = 2 * time.Second
	// orderSize is how many bytes of commands go into one record.
	orderSize = 256 << 10
	// readsAtOnce is how many requests are read side by side.
	readsAtOnce = 16
)

func (r *requests) ring() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// announce notes that there is to be a request.
func (r *requests) announce(id signal.ExecID) {
	r.mu.Lock()
	if _, before := r.awaited[id]; !before {
		r.awaited[id] = time.Now()
	}
	r.mu.Unlock()
	r.ring()
}

// Called takes in a sign of a caller over its connection.
func (r *requests) Called(raw lifeline.GuestID, look bool) {
	id := signal.ExecIDOf(raw)
	r.mu.Lock()
	r.heard[id] = time.Now()
	r.mu.Unlock()
	if look {
		r.announce(id)
	}
}

// Hung learns that a caller can't be heard any more. Where its kernel has closed
// the connection, or it said goodbye, it has gone; otherwise its beats by files
// are seen or not.
func (r *requests) Hung(raw lifeline.GuestID, how lifeline.Parting) {
	id := signal.ExecIDOf(raw)
	r.mu.Lock()
	if how == lifeline.Left || how == lifeline.Closed {
		r.hung[id] = true
	}
	r.mu.Unlock()
	r.ring()
}

// pause is how long until the next look; negative where none is due.
func (r *requests) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	longest := time.Duration(-1)
	if len(r.known) > 0 {
		longest = requestLook
	}
	for id, since := range r.awaited {
		waited := time.Since(since)
		if waited > announcedTime {
			delete(r.awaited, id)
			continue
		}
		soon := min(max(5*time.Millisecond, waited/2), requestLook)
		if longest < 0 || soon < longest {
			longest = soon
		}
	}
	return longest
}

// await waits for the next look, and tells whether there is one.
func (r *requests) await(ctx context.Context) bool {
	var due <-chan time.Time
	if wait := r.pause(); wait >= 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-r.bell:
	case <-due:
	}
	return ctx.Err() == nil
}

// retry has a request that could not be read looked for again.
func (r *requests) retry(id signal.ExecID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, before := r.awaited[id]; !before {
		r.awaited[id] = time.Now()
	}
}

// waited is for how long a request has been looked for.
func (r *requests) waited(id signal.ExecID) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, there := r.awaited[id]
	if !there {
		return 0
	}
	return time.Since(since)
}

// settle waits no longer for requests that are known, and drops what was heard of
// those that are over.
func (r *requests) settle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.known {
		delete(r.awaited, id)
	}
	for id := range r.past {
		delete(r.awaited, id)
		delete(r.heard, id)
		delete(r.hung, id)
	}
}

// sign returns when a caller was last heard over its connection, and whether it
// has gone.
func (r *requests) sign(id signal.ExecID) (heard time.Time, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard[id], r.hung[id]
}

// runs tells whether some node is still to say how a request has ended there.
func (r *requests) runs(id signal.ExecID) bool {
	q := r.known[id]
	return q != nil && len(q.missing) > 0
}

// forget has nothing more to do with a request.
func (r *requests) forget(id signal.ExecID) {
	delete(r.known, id)
	r.past[id] = time.Now()
	r.settle()
}

// followCalls has the head look into Exec when Control tells of a request.
func (h *head) followCalls(ctx context.Context) {
	taken := make(lately[signal.ExecID])
	_, _ = h.control.Follow(ctx, func(l signal.Listing) bool {
		for _, id := range taken.fresh(l.Calls(), l.At) {
			h.requests.announce(id)
			h.background(func(ctx context.Context) {
				h.logged(h.dir.Discard(ctx, signal.Control, id.CallName()))
			})
		}
		return false
	})
}

// followExec heeds what is asked for from outside.
func (h *head) followExec(ctx context.Context) {
	r := h.requests
	refused := ""
	for {
		if !r.await(ctx) {
			return
		}
		look, cancel := context.WithTimeoutCause(ctx, h.cfg.Times.Peer, errDeadline)
		shown, err := h.lookExec(look)
		cancel()
		if err != nil && err.Error() != refused && ctx.Err() == nil {
			refused = err.Error()
			h.log.Warn("cannot take requests from outside", zap.Error(err))
		}
		if err == nil {
			h.heed(ctx, shown)
		}
	}
}

// lookExec looks at what is asked for. The first caller makes the directory.
func (h *head) lookExec(ctx context.Context) (map[signal.ExecID]*signal.ExecShown, error) {
	if !h.requests.there {
		there, err := h.dir.HasExec(ctx)
		if !there || err != nil {
			return nil, err
		}
		h.requests.there = true
	}
	return h.dir.LookExec(ctx)
}

// heed does what follows from a look.
func (h *head) heed(ctx context.Context, shown map[signal.ExecID]*signal.ExecShown) {
	r, now := h.requests, time.Now()
	var fresh, over, canceled []signal.ExecID
	for id, s := range shown {
		if _, past := r.past[id]; past {
			over = append(over, id)
		} else if r.known[id] == nil && s.Request {
			fresh = append(fresh, id)
		}
	}
	r.past.fresh(over, now)
	slices.Sort(fresh)
	h.accept(ctx, fresh)
	now = time.Now()
	since := min(now.Sub(r.looked), silentLook)
	r.looked = now
	for id, q := range r.known {
		if h.judgeRequest(id, q, shown[id], since) {
			canceled = append(canceled, id)
		}
	}
	fresh = slices.DeleteFunc(fresh, func(id signal.ExecID) bool { return r.known[id] == nil })
	h.order(ctx, fresh, canceled)
	h.discardOrders()
}

// judgeRequest takes in what has become of a request, and tells whether it is to
// be ended early.
func (h *head) judgeRequest(id signal.ExecID, q *asked, s *signal.ExecShown, since time.Duration) bool {
	heard, gone := h.requests.sign(id)
	if s == nil {
		s = &signal.ExecShown{}
	}
	q.quiet += since
	if s.Beat > q.beat || heard.After(q.heard) {
		q.beat, q.heard, q.quiet = max(q.beat, s.Beat), heard, 0
	}
	for _, rank := range s.Ends {
		delete(q.missing, rank)
	}
	h.tellLost(id, q)
	gone = gone || q.quiet > callerSilence
	switch {
	case len(q.missing) == 0 && gone:
		h.requests.forget(id)
		h.background(func(ctx context.Context) {
			h.logged(h.dir.Discard(ctx, signal.Exec, s.Names...))
		})
	case len(q.missing) > 0 && (gone || s.Cancel) && !q.canceled:
		q.canceled = true
		return true
	}
	return false
}

// tellLost tells which nodes will not answer, once that is all that is waited
// for: the job goes on without them.
func (h *head) tellLost(id signal.ExecID, q *asked) {
	if q.lost || len(q.missing) == 0 || !h.roster.spares {
		return
	}
	absent := h.roster.absent(h.nodes.Last())
	var lost []int
	for rank := range q.missing {
		if !slices.Contains(absent, rank) {
			return
		}
		lost = append(lost, rank)
	}
	q.lost = true
	clear(q.missing)
	slices.Sort(lost)
	h.background(func(ctx context.Context) {
		h.logged(h.dir.Publish(ctx, signal.Exec, id.LostName(), &signal.ExecLost{Ranks: lost}, false))
	})
}

// accept reads requests, and answers who runs them or why nobody does. One that
// can't be read for now is left for the next look.
func (h *head) accept(ctx context.Context, fresh []signal.ExecID) {
	var reads errgroup.Group
	reads.SetLimit(readsAtOnce)
	taken := make([]*asked, len(fresh))
	for i, id := range fresh {
		reads.Go(func() error {
			taken[i] = h.read(ctx, id)
			return nil
		})
	}
	_ = reads.Wait()
	for i, id := range fresh {
		if taken[i] == nil {
			h.requests.retry(id)
			continue
		}
		h.requests.known[id] = taken[i]
	}
	h.requests.settle()
}

// read reads one request; it returns nil where that can't be done for now.
func (h *head) read(ctx context.Context, id signal.ExecID) *asked {
	q := &asked{missing: make(map[int]bool)}
	short, cancel := context.WithTimeoutCause(ctx, h.cfg.Times.Peer, errDeadline)
	defer cancel()
	var answer signal.ExecTaken
	err := h.dir.ReadOwn(short, id.RequestName(), &q.record)
	if hangs(err) || signal.Absent(err) && h.requests.waited(id) < absentTime {
		return nil
	}
	if err == nil && h.life.Err() != nil {
		err = errors.New("the run is ending")
	}
	if err == nil {
		q.ranks, err = h.choose(q.record.Nodes)
	}
	if err == nil && len(q.record.Argv) == 0 {
		err = errors.New("there is no command")
	}
	if err != nil {
		answer.Refused, q.ranks = err.Error(), nil
		h.log.Warn("a request from outside is refused", zap.String("request", string(id)), zap.Error(err))
	}
	for _, rank := range q.ranks {
		q.missing[rank] = true
		answer.Nodes = append(answer.Nodes, signal.ExecNode{Rank: rank, Host: h.callName(rank)})
	}
	h.trail.Event(trail.Request, trail.Fields{Request: string(id), Nodes: new(len(q.ranks)), OK: new(err == nil)})
	h.background(func(ctx context.Context) {
		h.logged(h.dir.Publish(ctx, signal.Exec, id.TakenName(), &answer, false))
	})
	return q
}
