package exec

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

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	// clientSilenceTimeout is how long a caller may send no heartbeat. After that its commands are
	// ended.
	clientSilenceTimeout = 8 * time.Second
	// maxCountedSilence is the maximum time between two polls that counts as silence of a caller. A
	// longer interval may be the fault of this daemon or of the file system.
	maxCountedSilence = time.Second
	// announcedTimeout is how long the head polls for an announced request.
	announcedTimeout = 30 * time.Second
	// requestPollInterval is the polling interval while requests are handled. firstPollDelay is the
	// pause before the first poll for an announced request.
	requestPollInterval = 500 * time.Millisecond
	firstPollDelay      = 5 * time.Millisecond
	// missingRequestTimeout is how long the head retries to read a request that a listing shows, but
	// that is missing or incomplete. A request with the nonce of another attempt never becomes valid.
	missingRequestTimeout = 2 * time.Second
	// lostNodeExitCode is the exit code for a lost node. It is the same as that of bringupd itself.
	lostNodeExitCode = 76
)

// Team provides information about the run's nodes to the head.
type Team interface {
	// SelectNodes returns the sorted indices of the nodes that words select: see [Request].
	SelectNodes(words []string) ([]int, error)
	// OutputPrefix returns the host of a node, which is the prefix of its output.
	OutputPrefix(node int) string
	// AbsentNodes returns the nodes that will not answer although the run continues.
	AbsentNodes() []int
	// NotifyWorker makes a worker poll the control directory now, if it has a peer link.
	NotifyWorker(node int)
}

// Head is the head's side. It accepts requests, makes the nodes run them (including the head
// itself), and removes their files.
type Head struct {
	Daemon
	node          *Node
	team          Team
	pollRequested chan struct{} // buffered by one: poll now

	mu       sync.Mutex
	requests map[requestID]*activeRequest // guarded by mu

	// The following fields are used only by the goroutine of HandleRequests.
	execDirSeen bool      // a listing has shown the exec directory
	lastPoll    time.Time // time of the last poll
}

// activeRequest is the head's state of one request.
type activeRequest struct {
	id requestID

	// The following fields are guarded by Head's mu.
	stage       requestStage
	callSeen    bool          // a listing of the control directory has shown its call
	announcedAt time.Time     // when it was announced
	lastEvent   time.Time     // time of the last event
	silentFor   time.Duration // time since the last heartbeat of the caller, counted between polls
	clientGone  bool          // the caller has closed its connection

	// The following fields are used by the goroutine of HandleRequests, and by [Head.acceptRequests]
	// for the requests that it handles.
	// nodes that run the command and have not answered; empty after a refusal
	unanswered    map[int]bool
	newestBeat    int // number of the newest heartbeat in a listing
	canceled      bool
	finished      bool         // it is finished; the next listing shows all its remaining files
	orders        []string     // names of its orders in the control directory
	pendingWrites atomic.Int32 // number of pending writes of the head for it
}

// requestStage is the progress of a request.
type requestStage int

const (
	// the caller is connected, or a listing has shown a file of the request
	stageUnknown   requestStage = iota
	stageAnnounced              // the head polls for it
	stageAccepted               // the head has answered: the command runs, or is refused
	stageRemoved                // its files are removed, but an old listing may still show them
)

// NewHead returns the head's side. node is the head's own [Node]. Polling begins with
// HandleRequests.
func NewHead(node *Node, team Team) *Head {
	return &Head{Daemon: node.Daemon, node: node, team: team, pollRequested: make(chan struct{}, 1), requests: make(map[requestID]*activeRequest)}
}

// IsBusy reports whether a request runs, or has been announced.
func (h *Head) IsBusy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.requests {
		if q.stage == stageAnnounced || q.stage == stageAccepted {
			return true
		}
	}
	return false
}

// recordEvent calls sign with the state of a request, which it creates if necessary. mu is held
// during the call.
func (h *Head) recordEvent(id requestID, sign func(*activeRequest)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.requests[id]
	if q == nil {
		q = &activeRequest{id: id}
		h.requests[id] = q
	}
	q.lastEvent = time.Now()
	sign(q)
}

// startPolling makes the head poll for a request, unless it does already. mu must be held.
func (q *activeRequest) startPolling() {
	if q.stage == stageUnknown {
		q.stage, q.announcedAt = stageAnnounced, q.lastEvent
	}
}

// ClientActive handles a heartbeat or a notification (look) on a caller's connection. It implements
// [peerlink.ClientHandler].
func (h *Head) ClientActive(raw peerlink.ClientID, look bool) {
	h.recordEvent(requestIDFrom(raw), func(q *activeRequest) {
		q.silentFor = 0
		if look {
			q.startPolling()
		}
	})
	if look {
		ctxutil.NotifyChannel(h.pollRequested)
	}
}

// ClientGone handles the end of a caller's connection. It implements [peerlink.ClientHandler].
// After a goodbye message, or if the caller's kernel has closed the connection, the caller has
// gone. Otherwise its heartbeat files decide.
func (h *Head) ClientGone(raw peerlink.ClientID, how peerlink.CloseReason) {
	h.recordEvent(requestIDFrom(raw), func(q *activeRequest) {
		q.clientGone = q.clientGone || how == peerlink.Goodbye || how == peerlink.Closed
	})
	ctxutil.NotifyChannel(h.pollRequested)
}

// HandleRequests handles requests from outside the job until ctx ends.
func (h *Head) HandleRequests(ctx context.Context) {
	h.Go(func(context.Context) { h.watchAnnouncements(ctx) })
	refused := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.pollRequested:
		case <-time.After(h.nextPollDelay()):
		}
		shown, err := h.pollRequests(ctx)
		switch {
		case err == nil:
			h.acceptRequests(ctx, shown)
			h.updateRequests(shown)
		case err.Error() != refused && ctx.Err() == nil:
			refused = err.Error()
			h.Log.Warn("cannot read requests of other bringupd commands", zap.Error(err))
		}
	}
}

// watchAnnouncements watches the control directory for announced requests, makes the head poll the
// exec directory for them, and removes the announcements.
func (h *Head) watchAnnouncements(ctx context.Context) {
	_, _ = h.Control.FollowListings(ctx, func(l signal.Listing) bool {
		for id := range groupByRequest(l.AllNames(), callPrefix) {
			before := false
			h.recordEvent(id, func(q *activeRequest) {
				before, q.callSeen = q.callSeen, true
				q.startPolling()
			})
			if before {
				continue
			}
			ctxutil.NotifyChannel(h.pollRequested)
			h.removeAsync(signal.ControlDir, []string{callPrefix + string(id)})
		}
		return false
	})
}

// nextPollDelay returns the time until the next poll, or [noPollDue] if none is due. It drops
// announced requests that were not found in time.
func (h *Head) nextPollDelay() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	shortest := noPollDue
	for _, q := range h.requests {
		switch waited := time.Since(q.announcedAt); {
		case q.stage == stageAnnounced && waited > announcedTimeout:
			q.stage = stageUnknown
		case q.stage == stageAnnounced:
			shortest = min(shortest, max(firstPollDelay, waited/2), requestPollInterval)
		case q.stage == stageAccepted:
			shortest = min(shortest, requestPollInterval)
		}
	}
	return shortest
}

const noPollDue = time.Duration(math.MaxInt64)

// pollRequests lists the exec directory, and groups its names by request. It does not open the
// directory before a listing of the run directory has shown it, because the first caller makes it,
// and a client may cache that the name is missing.
func (h *Head) pollRequests(ctx context.Context) (map[requestID]requestFiles, error) {
	ctx, cancel := h.withFileTimeout(ctx)
	defer cancel()
	if !h.execDirSeen {
		names, err := h.Dir.ListNames(ctx, "")
		if h.execDirSeen = slices.Contains(names, signal.ExecDir); !h.execDirSeen {
			return nil, err
		}
	}
	names, err := h.Dir.ListOwnedNames(ctx, signal.ExecDir)
	return groupByRequest(names, ""), err
}

// acceptRequests reads the announced requests in a listing, publishes the head's answers, and starts
// the commands. A request that cannot be read now is read at the next poll.
func (h *Head) acceptRequests(ctx context.Context, all map[requestID]requestFiles) {
	ctx, cancel := h.withFileTimeout(ctx)
	defer cancel()
	var reads errgroup.Group
	reads.SetLimit(maxConcurrentReads)
	for id, s := range all {
		var unread *activeRequest
		h.recordEvent(id, func(q *activeRequest) {
			if s[requestSuffix] {
				q.startPolling()
			}
			if s[requestSuffix] && q.stage == stageAnnounced {
				unread = q
			}
		})
		if unread == nil {
			continue
		}
		reads.Go(func() error {
			var record requestRecord
			err := h.Dir.ReadOwnedRecord(ctx, signal.ExecDir, id.fileName(requestSuffix), &record)
			late := time.Since(unread.announcedAt) >= missingRequestTimeout
			if !signal.IsStalled(err) && (!signal.IsTransient(err) || late) {
				h.answerRequest(unread, record.Request, err)
			}
			return nil
		})
	}
	_ = reads.Wait()
}

// answerRequest publishes the nodes that run a request, and starts the command there; or it
// publishes the reason for a refusal. err is the error of reading the request, or nil.
func (h *Head) answerRequest(q *activeRequest, order Request, err error) {
	// Select the nodes, or find the reason for a refusal.
	var nodes []int
	switch {
	case err != nil:
	case h.RunCtx.Err() != nil:
		err = errors.New("the run is ending")
	case len(order.Argv) == 0:
		err = errors.New("no command was given")
	default:
		nodes, err = h.team.SelectNodes(order.Nodes)
	}
	var answer acceptedRecord
	if err != nil {
		nodes, answer.Refused = nil, err.Error()
		h.Log.Warn("a request of another bringupd command is refused", zap.String("request", string(q.id)), zap.Error(err))
	}
	// Publish the answer.
	q.unanswered = make(map[int]bool)
	for _, node := range nodes {
		q.unanswered[node] = true
		answer.Nodes = append(answer.Nodes, Result{NodeIndex: node, Host: h.team.OutputPrefix(node)})
	}
	h.mu.Lock()
	q.stage = stageAccepted
	h.mu.Unlock()
	h.Trail.WriteEvent(eventlog.RequestAccepted, eventlog.Fields{ObjectFields: eventlog.ObjectFields{Request: string(q.id), Nodes: new(len(nodes))}, OK: new(err == nil)})
	h.writeAsync(q, func(ctx context.Context) error {
		return h.Dir.PublishRecord(ctx, signal.ExecDir, q.id.fileName(acceptedSuffix), &answer, false)
	})
	// Start the command on the head itself, and order the workers to start it.
	begin := startRecord{ID: q.id, Argv: order.Argv, Env: order.Env, OwnProgram: order.OwnProgram, Nodes: nodes}
	if q.unanswered[0] {
		h.node.startCommand(begin)
	}
	h.orderWorkers(q, "", func(ctx context.Context, name string) error {
		return h.Dir.PublishRecord(ctx, signal.ControlDir, name, &begin, false)
	})
}

// orderWorkers orders the workers that have not answered to start a request or to cancel it (what).
// It writes the order to the control directory, and notifies the workers to poll it.
func (h *Head) orderWorkers(q *activeRequest, what string, write func(ctx context.Context, name string) error) {
	workers := slices.DeleteFunc(slices.Collect(maps.Keys(q.unanswered)), func(node int) bool { return node == 0 })
	if len(workers) == 0 {
		return
	}
	name := q.id.orderName(what)
	q.orders = append(q.orders, name)
	h.writeAsync(q, func(ctx context.Context) error {
		ctx, cancel := h.withFileTimeout(ctx)
		defer cancel()
		err := write(ctx, name)
		for _, node := range workers {
			h.team.NotifyWorker(node)
		}
		return err
	})
}

// writeAsync runs the given function, which writes a file of the request, in the background. The
// request's files are not removed before it has ended.
func (h *Head) writeAsync(q *activeRequest, write func(ctx context.Context) error) {
	q.pendingWrites.Add(1)
	h.Go(func(ctx context.Context) {
		defer q.pendingWrites.Add(-1)
		h.LogWriteError(write(ctx))
	})
}

// updateRequests updates the requests after a poll: it cancels the commands of callers that have
// gone, removes the files of finished requests, and forgets requests that no listing can show any
// more.
func (h *Head) updateRequests(all map[requestID]requestFiles) {
	now := time.Now()
	since := min(now.Sub(h.lastPoll), maxCountedSilence)
	h.lastPoll = now
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, q := range h.requests {
		if q.stage != stageAccepted {
			if now.Sub(q.lastEvent) > maxListingAge {
				delete(h.requests, id)
			}
			continue
		}
		// Count the silence of the caller.
		s := all[id]
		q.silentFor += since
		if beat := s.newestBeat(); beat > q.newestBeat {
			q.newestBeat, q.silentFor = beat, 0
		}
		// Find the nodes that have answered.
		maps.DeleteFunc(q.unanswered, func(node int, _ bool) bool { return s[endSuffix(h.Dir, node)] })
		h.answerForLost(q)
		// Cancel the commands if the caller has gone or requests it.
		gone := q.clientGone || q.silentFor > clientSilenceTimeout
		if len(q.unanswered) > 0 && (gone || s[cancelSuffix]) && !q.canceled {
			q.canceled = true
			h.node.cancelCommand(id)
			h.orderWorkers(q, cancelSuffix, func(ctx context.Context, name string) error { return h.Dir.WriteMark(ctx, signal.ControlDir, name) })
		}
		// Remove the files if all nodes have answered.
		if len(q.unanswered) > 0 || q.pendingWrites.Load() > 0 {
			continue
		}
		if len(q.orders) > 0 { // orders may contain secrets
			h.removeAsync(signal.ControlDir, q.orders)
			q.orders = nil
		}
		switch {
		case !gone:
		case !q.finished: // this listing may lack the newest files: wait for the next one
			q.finished = true
			ctxutil.NotifyChannel(h.pollRequested)
		default:
			h.requests[id] = &activeRequest{id: id, stage: stageRemoved, callSeen: q.callSeen, lastEvent: now}
			h.removeAsync(signal.ExecDir, s.fileNames(id))
		}
	}
}

// answerForLost publishes the last record of nodes that are lost, if all other nodes have answered,
// because the job continues without them.
func (h *Head) answerForLost(q *activeRequest) {
	if len(q.unanswered) == 0 {
		return
	}
	absent := h.team.AbsentNodes()
	for node := range q.unanswered {
		if !slices.Contains(absent, node) {
			return
		}
	}
	for node := range q.unanswered {
		lost := &outputRecord{Output: Output{
			End: &Exit{Code: lostNodeExitCode, Exit: "lost", Failed: "the node is lost"},
		}}
		h.writeAsync(q, func(ctx context.Context) error {
			err := h.Dir.ClaimRecord(ctx, signal.ExecDir, q.id.fileName(endSuffix(h.Dir, node)), lost)
			if errors.Is(err, signal.ErrAlreadyPublished) { // its own record is newer than this listing
				return nil
			}
			return err
		})
	}
	clear(q.unanswered)
}

// removeAsync removes names from a directory in the background.
func (h *Head) removeAsync(sub string, names []string) {
	h.Go(func(ctx context.Context) { h.LogWriteError(h.Dir.RemoveNames(ctx, sub, names...)) })
}

// RemoveOrders removes the remaining orders from the control directory at the end of the run.
func (h *Head) RemoveOrders(ctx context.Context) {
	for id, s := range groupByRequest(h.Control.LastListing().AllNames(), orderPrefix) {
		for what := range s {
			h.LogWriteError(h.Dir.RemoveNames(ctx, signal.ControlDir, id.orderName(what)))
		}
	}
}
