package exec

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"regexp"
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

func newRequestID() requestID {
	raw := make([]byte, 8)
	_, _ = rand.Read(raw) // crypto/rand never fails
	return requestID(hex.EncodeToString(raw))
}

// Names of a request in control/ are a prefix, the id, and for an order perhaps a suffix.
const (
	callPrefix   = "call."
	orderPrefix  = "exec."
	cancelSuffix = ".cancel"
	beatSuffix   = ".beat." // followed by a number
)

// callName, orderName, cancelName and beatName return the names of the request in control/: that of the
// caller, that of the head, that by which the caller cancels it, and those of the caller's heartbeats.
// endName returns the name in exec/ of a node's answer.
func (id requestID) callName() string { return callPrefix + string(id) }

func (id requestID) orderName() string { return orderPrefix + string(id) }

func (id requestID) cancelName() string { return id.orderName() + cancelSuffix }

func (id requestID) beatName(number int) string {
	return id.orderName() + beatSuffix + strconv.Itoa(number)
}

func (id requestID) endName(dir *signal.Dir, node int) string {
	return string(id) + "." + dir.NodeName(node, "end")
}

var requestName = regexp.MustCompile(`^(?:call|exec)\.([0-9a-f]{16})(?:\.|$)`)

// groupByRequest groups the names of a listing of control/ by request. Other names are ignored.
func groupByRequest(names []string) map[requestID][]string {
	all := make(map[requestID][]string)
	for _, name := range names {
		if match := requestName.FindStringSubmatch(name); match != nil {
			id := requestID(match[1])
			all[id] = append(all[id], name)
		}
	}
	return all
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

const (
	// heartbeatInterval is the interval of a caller's heartbeats. silenceTimeout is how long the names of
	// a request may stay the same before its commands are ended; after the double time the head removes
	// the names.
	heartbeatInterval = 5 * time.Second
	silenceTimeout    = 30 * time.Second
	// maxCountedSilence is the maximum time between two polls that counts as silence of a caller. It is
	// longer than any polling interval. A longer time may be the fault of the file system.
	maxCountedSilence = 15 * time.Second
	// maxListingAge is how long a client of a shared file system may show names that were removed, with
	// a large margin. A request is remembered as long, and not accepted again.
	maxListingAge = 10 * time.Minute
	// missingCallTimeout is how long the head retries to read a request that a listing shows, but that
	// is missing or incomplete. A request with the nonce of another attempt never becomes valid.
	missingCallTimeout = 2 * time.Second
	callRetryInterval  = 100 * time.Millisecond
)

// order is a node's state of a request that files carry.
type order struct {
	cancel     context.CancelFunc
	wanted     context.Context
	isAccepted bool     // the head answers it, or has answered it
	isRead     bool     // it is being read, or was read
	names      []string // the newest that a listing has shown
	silentFor  time.Duration
	lastShown  time.Time
	nodes      []int // that run it; empty before it is read
	claimed    []int // lost nodes for which the head has answered
}

// HandleOrders watches the control directory for requests until ctx ends: the head answers them, and
// every node carries out the head's orders.
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
	sincePoll := min(l.PolledAt.Sub(n.polledAt), maxCountedSilence)
	n.polledAt = l.PolledAt
	for _, o := range n.orders {
		o.silentFor += sincePoll
	}
	for id, names := range groupByRequest(l.AllNames()) {
		o := n.orders[id]
		if o == nil {
			o = new(order)
			o.wanted, o.cancel = context.WithCancel(context.Background())
			n.orders[id] = o
		}
		o.lastShown = l.PolledAt
		if slices.Sort(names); !slices.Equal(names, o.names) {
			o.names, o.silentFor = names, 0
		}
		if slices.Contains(names, id.cancelName()) {
			o.cancel()
		}
		if slices.Contains(names, id.orderName()) && !o.isRead {
			o.isRead = true
			n.Go(func(ctx context.Context) { n.carryOut(ctx, id, o) })
		}
		if n.head != nil {
			n.head.followOrder(id, o, names)
		}
	}
	for id, o := range n.orders {
		if o.silentFor > silenceTimeout {
			o.cancel()
		}
		if l.PolledAt.Sub(o.lastShown) > maxListingAge {
			delete(n.orders, id)
		}
	}
}

// carryOut reads an order, and runs its command if the order is for this node. If the file system
// does not respond in time, the next listing that shows the order makes it try again.
func (n *Node) carryOut(ctx context.Context, id requestID, o *order) {
	var r orderRecord
	reading, cancel := n.withFileTimeout(ctx)
	err := n.Dir.ReadRecord(reading, signal.ControlDir, id.orderName(), &r)
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
	c.maxOutput = maxFileOutput
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
	for _, o := range h.node.orders {
		if o.lastShown.Equal(h.node.polledAt) && o.silentFor <= silenceTimeout {
			return true
		}
	}
	return h.activeCallers.Load() > 0
}

// followOrder answers a new request, answers for lost nodes, because the job continues without them,
// and removes the names of a silent caller.
func (h *Head) followOrder(id requestID, o *order, names []string) {
	if slices.Contains(names, id.callName()) && !o.isAccepted {
		o.isAccepted = true
		h.activeCallers.Add(1)
		h.Go(func(ctx context.Context) {
			defer h.activeCallers.Add(-1)
			h.answerCall(ctx, id)
		})
	}
	if o.silentFor > 2*silenceTimeout {
		h.Go(func(ctx context.Context) { h.removeNames(ctx, id, names) })
		return
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

// answerCall reads a request, and publishes the nodes that run it, or the reason for a refusal.
func (h *Head) answerCall(ctx context.Context, id requestID) {
	request, err := h.readCall(ctx, id)
	if ctx.Err() != nil {
		return
	}
	r := &orderRecord{accepted: h.acceptRequest(string(id), request, err)}
	if len(r.Nodes) > 0 {
		r.Request = request
	}
	ctx, cancel := h.withFileTimeout(ctx)
	defer cancel()
	h.LogWriteError(h.Dir.PublishRecord(ctx, signal.ControlDir, id.orderName(), r, false))
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

// removeNames removes the names of a request, of which names are in control/.
func (h *Head) removeNames(ctx context.Context, id requestID, names []string) {
	h.LogWriteError(h.Dir.RemoveNames(ctx, signal.ControlDir, names...))
	if ends, err := h.Dir.ListOwnedNames(ctx, signal.ExecDir); err == nil {
		ends = slices.DeleteFunc(ends, func(name string) bool { return !strings.HasPrefix(name, string(id)+".") })
		h.LogWriteError(h.Dir.RemoveNames(ctx, signal.ExecDir, ends...))
	}
}

// RemoveOrders removes the remaining orders from the control directory at the end of the run.
func (h *Head) RemoveOrders(ctx context.Context) {
	for id := range groupByRequest(h.Control.LastListing().AllNames()) {
		h.LogWriteError(h.Dir.RemoveNames(ctx, signal.ControlDir, id.orderName()))
	}
}
