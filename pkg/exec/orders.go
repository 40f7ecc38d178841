package exec

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// requestID identifies a request. It has 16 hexadecimal digits.
type requestID string

// idSize is the number of bytes of an id.
const idSize = 8

// newRequestID returns a random id.
func newRequestID() requestID {
	raw := make([]byte, idSize)
	_, _ = rand.Read(raw) // crypto/rand never fails
	return requestID(hex.EncodeToString(raw))
}

// isValid reports whether this is an id. Digits in upper case are not valid.
func (id requestID) isValid() bool {
	raw, err := hex.DecodeString(string(id))
	return err == nil && len(raw) == idSize && hex.EncodeToString(raw) == string(id)
}

// Names of a request in control/ are a prefix, the id, and for an order perhaps a suffix.
const (
	callPrefix   = "call."
	orderPrefix  = "exec."
	cancelSuffix = "cancel"
	beatSuffix   = "beat" // followed by a number
)

// callName and orderName return the names of the request in control/: that of the caller, and that
// of the head or, with a suffix, of the caller. endName returns the name in exec/ of a node's answer.
func (id requestID) callName() string { return callPrefix + string(id) }

func (id requestID) orderName(suffix string) string {
	return strings.TrimSuffix(orderPrefix+string(id)+"."+suffix, ".")
}

func (id requestID) endName(dir *signal.Dir, node int) string {
	return string(id) + "." + dir.NodeName(node, "end")
}

// requestNames is the set of suffixes of one request's names in a listing.
type requestNames map[string]bool

// groupByRequest groups the names of a listing with a prefix by request. Other names are ignored.
func groupByRequest(names []string, prefix string) map[requestID]requestNames {
	all := make(map[requestID]requestNames)
	for _, name := range names {
		name, is := strings.CutPrefix(name, prefix)
		digits, suffix, _ := strings.Cut(name, ".")
		if id := requestID(digits); is && id.isValid() {
			if all[id] == nil {
				all[id] = make(requestNames)
			}
			all[id][suffix] = true
		}
	}
	return all
}

// newestBeat returns the number of the caller's newest heartbeat, or 0 if there is none.
func (s requestNames) newestBeat() (newest int) {
	for suffix := range s {
		if digits, is := strings.CutPrefix(suffix, beatSuffix+"."); is {
			n, _ := strconv.Atoi(digits)
			newest = max(newest, n)
		}
	}
	return newest
}

// callRecord is the file of a request, written by the caller.
type callRecord struct {
	record.Header
	Request
}

// orderRecord is the head's answer to a request, and its order to the nodes.
type orderRecord struct {
	record.Header
	accepted
	Request Request `json:"request,omitzero"`
}

// endRecord is a node's answer: its whole output, and the exit.
type endRecord struct {
	record.Header
	Output
}

// maxFileOutput is the amount of a command's output from one node after which further output is
// dropped. With the last part and the overhead of JSON, it is below the size limit of records.
const maxFileOutput = 384 << 10

// recentRequests has recent requests, each with the time of the last listing that has shown it. It
// exists because a listing may be stale, and show a request again.
type recentRequests map[requestID]time.Time

// maxListingAge is how long a client of a shared file system may show names that were removed, with
// a large margin.
const maxListingAge = 10 * time.Minute

// addIfNew adds a request that a listing shows, and reports whether it is new. It also removes
// requests that no listing can show any more.
func (l recentRequests) addIfNew(id requestID, at time.Time) bool {
	_, before := l[id]
	l[id] = at
	maps.DeleteFunc(l, func(_ requestID, shown time.Time) bool { return at.Sub(shown) > maxListingAge })
	return !before
}

const (
	// callerSilenceTimeout is how long a caller may send no heartbeat. After that its commands are
	// ended, and after the double time its names are removed.
	callerSilenceTimeout = 30 * time.Second
	// maxCountedSilence is the maximum time between two polls that counts as silence of a caller. It is
	// longer than any polling interval. A longer time may be the fault of the file system.
	maxCountedSilence = 15 * time.Second
	// missingCallTimeout is how long the head retries to read a request that a listing shows, but that
	// is missing or incomplete. A request with the nonce of another attempt never becomes valid.
	missingCallTimeout = 2 * time.Second
	callRetryInterval  = 100 * time.Millisecond
)

// order is a node's state of a request that files carry.
type order struct {
	cancel    context.CancelFunc
	wanted    context.Context
	isRead    bool // it is being read, or was read
	beat      int  // number of the newest heartbeat
	polledAt  time.Time
	shownAt   time.Time
	silentFor time.Duration
	nodes     []int // that run it; empty before it is read
	claimed   []int // lost nodes for which the head has answered
}

// HandleOrders watches the control directory for the head's orders, and carries them out, until ctx
// ends.
func (n *Node) HandleOrders(ctx context.Context) {
	_, _ = n.Control.FollowListings(ctx, func(l signal.Listing) bool {
		n.followOrders(l)
		return false
	})
}

// followOrders starts the commands of new orders in a listing, and ends those that their callers
// have cancelled or left.
func (n *Node) followOrders(l signal.Listing) {
	n.mu.Lock()
	defer n.mu.Unlock()
	shown := groupByRequest(l.AllNames(), orderPrefix)
	for id := range shown {
		if n.orders[id] == nil {
			o := &order{polledAt: l.PolledAt}
			o.wanted, o.cancel = context.WithCancel(context.Background())
			n.orders[id] = o
		}
	}
	for id, o := range n.orders {
		s := shown[id]
		o.silentFor += min(l.PolledAt.Sub(o.polledAt), maxCountedSilence)
		o.polledAt = l.PolledAt
		if beat := s.newestBeat(); beat > o.beat {
			o.beat, o.silentFor = beat, 0
		}
		if len(s) > 0 {
			o.shownAt = l.PolledAt
		}
		if s[cancelSuffix] || o.silentFor > callerSilenceTimeout {
			o.cancel()
		}
		if s[""] && !o.isRead {
			o.isRead = true
			n.Go(func(ctx context.Context) { n.carryOut(ctx, id, o) })
		}
		if l.PolledAt.Sub(o.shownAt) > maxListingAge {
			delete(n.orders, id)
		}
	}
}

// carryOut reads an order, and runs its command if the order is for this node. If the file system
// does not respond in time, the next listing that shows the order makes it try again.
func (n *Node) carryOut(ctx context.Context, id requestID, o *order) {
	var r orderRecord
	reading, cancel := n.withFileTimeout(ctx)
	err := n.Dir.ReadRecord(reading, signal.ControlDir, id.orderName(""), &r)
	cancel()
	n.mu.Lock()
	o.nodes, o.isRead = r.members(), !errors.Is(err, errDeadline)
	n.mu.Unlock()
	if err != nil {
		n.Log.Debug("cannot read a request of another bringupd command", zap.Error(err))
		return
	}
	if _, isOwn := slices.BinarySearch(r.members(), n.NodeIndex); !isOwn {
		return
	}
	wanted, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(o.wanted, stop)()
	c := n.requestCommand(r.Request)
	c.maxDelay, c.maxOutput = time.Hour, maxFileOutput
	n.runCommand(wanted, string(id), c, func(last Output) error {
		ctx, cancel := n.withFileTimeout(ctx)
		defer cancel()
		err := n.Dir.PublishRecord(ctx, signal.ExecDir, id.endName(n.Dir, n.NodeIndex), &endRecord{Output: last}, false)
		n.LogWriteError(err)
		return err
	})
}

// IsBusy reports whether a command of a caller runs, or has been requested.
func (h *Head) IsBusy() bool {
	h.node.mu.Lock()
	defer h.node.mu.Unlock()
	isLive := func(o *order) bool { return o.shownAt.Equal(o.polledAt) && o.silentFor <= callerSilenceTimeout }
	return h.activeCallers.Load() > 0 || slices.ContainsFunc(slices.Collect(maps.Values(h.node.orders)), isLive)
}

// HandleRequests handles requests that files carry until ctx ends.
func (h *Head) HandleRequests(ctx context.Context) {
	_, _ = h.Control.FollowListings(ctx, func(l signal.Listing) bool {
		for id := range groupByRequest(l.AllNames(), callPrefix) {
			if h.calls.addIfNew(id, l.PolledAt) {
				h.activeCallers.Add(1)
				h.Go(func(ctx context.Context) {
					defer h.activeCallers.Add(-1)
					h.answerCall(ctx, id)
				})
			}
		}
		h.node.followOrders(l)
		h.followCallers(groupByRequest(l.AllNames(), orderPrefix))
		return false
	})
}

// answerCall reads a request, and publishes the nodes that run it, or the reason for a refusal.
func (h *Head) answerCall(ctx context.Context, id requestID) {
	request, err := h.readCall(ctx, id)
	if ctx.Err() != nil {
		return
	}
	r := &orderRecord{Request: request}
	if err != nil {
		r.accepted = h.newAnswer(string(id), nil, err)
	} else {
		r.accepted = h.acceptRequest(string(id), request)
	}
	if len(r.Nodes) == 0 {
		r.Request = Request{}
	}
	ctx, cancel := h.withFileTimeout(ctx)
	defer cancel()
	h.LogWriteError(h.Dir.PublishRecord(ctx, signal.ControlDir, id.orderName(""), r, false))
	h.LogWriteError(h.Dir.RemoveNames(ctx, signal.ControlDir, id.callName()))
	h.Control.NotifyChange()
	for _, node := range r.members() {
		if node > 0 {
			h.team.NotifyWorker(node)
		}
	}
}

// readCall reads a request that only this user can have written. It tries again if the request is
// incomplete, and as long as the file system does not respond.
func (h *Head) readCall(ctx context.Context, id requestID) (Request, error) {
	for began := time.Now(); ; {
		var r callRecord
		reading, cancel := h.withFileTimeout(ctx)
		_, err := h.Dir.ListOwnedNames(reading, signal.ControlDir)
		if err == nil {
			err = h.Dir.ReadOwnedRecord(reading, signal.ControlDir, id.callName(), &r)
		}
		cancel()
		isMissing := signal.IsTransient(err) && time.Since(began) < missingCallTimeout
		if !isMissing && !signal.IsStalled(err) || !ctxutil.SleepContext(ctx, callRetryInterval) {
			return r.Request, err
		}
	}
}

// followCallers answers for lost nodes, because the job continues without them, and removes the
// names of silent callers.
func (h *Head) followCallers(shown map[requestID]requestNames) {
	h.node.mu.Lock()
	defer h.node.mu.Unlock()
	for id, s := range shown {
		o := h.node.orders[id]
		if o.silentFor > 2*callerSilenceTimeout {
			h.Go(func(ctx context.Context) { h.removeNames(ctx, id, s) })
			continue
		}
		for _, node := range h.team.AbsentNodes() {
			if !slices.Contains(o.nodes, node) || slices.Contains(o.claimed, node) {
				continue
			}
			o.claimed = append(o.claimed, node)
			h.Go(func(ctx context.Context) {
				err := h.Dir.ClaimRecord(ctx, signal.ExecDir, id.endName(h.Dir, node),
					&endRecord{Output: Output{End: &lostExit}})
				if !errors.Is(err, signal.ErrAlreadyPublished) {
					h.LogWriteError(err)
				}
			})
		}
	}
}

// removeNames removes the names of a request, of which s has those in control/.
func (h *Head) removeNames(ctx context.Context, id requestID, s requestNames) {
	var names []string
	for suffix := range s {
		names = append(names, id.orderName(suffix))
	}
	h.LogWriteError(h.Dir.RemoveNames(ctx, signal.ControlDir, names...))
	if ends, err := h.Dir.ListOwnedNames(ctx, signal.ExecDir); err == nil {
		ends = slices.DeleteFunc(ends, func(name string) bool { return !strings.HasPrefix(name, string(id)+".") })
		h.LogWriteError(h.Dir.RemoveNames(ctx, signal.ExecDir, ends...))
	}
}

// RemoveOrders removes the remaining orders from the control directory at the end of the run.
func (h *Head) RemoveOrders(ctx context.Context) {
	for id := range groupByRequest(h.Control.LastListing().AllNames(), orderPrefix) {
		h.LogWriteError(h.Dir.RemoveNames(ctx, signal.ControlDir, id.orderName("")))
	}
}
