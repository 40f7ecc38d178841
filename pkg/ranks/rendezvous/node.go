package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
)

// Config holds the parameters of a node's side.
type Config struct {
	Self NodeRanks // this node and its ranks
	// Layout returns all nodes of the team. It is called at most once, and only when a program
	// requests a value of another node: most nodes of a large team need only their own place.
	Layout func() Layout
	// Dial opens a connection to the head, authenticated as this node. [Head.ServeNode] serves the
	// other end.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	// AwaitLink waits until it is known whether this node can reach the head, or until ctx ends. It
	// returns the reason if it cannot. rank is the rank that makes the request, -1 for another
	// program. A nil function means that the head is always reachable.
	AwaitLink func(ctx context.Context, rank int) error
	// AbortJob ends the job with an exit code from 1 to 255 and a message. rank is the rank that
	// requested it, -1 for another program.
	AbortJob func(rank, code int, message string)
	// OnRoundEnd is called when a round of a fence has finished for the ranks of this node, with the
	// time since the first of them entered. err is not nil if the round failed. The function may be
	// nil.
	OnRoundEnd func(fence string, round int, took time.Duration, err error)
	// ReportStep records the step that a rank has reached. The function may be nil.
	ReportStep func(rank int, step float64)
	// HandleOrder executes an order of the head, on a goroutine that Background starts and waits for.
	HandleOrder Handler
	Background  func(task func(ctx context.Context))
	Log         *zap.Logger
}

// Node is the node's side of the rendezvous. It serves the requests of the node's programs and
// sends requests to the head. Methods whose names end in Locked require n.mu.
type Node struct {
	cfg          Config
	initialGroup Group // the ranks that the run began with
	self         *NodeRanks
	layout       func() Layout // [Config.Layout], called at most once
	wake         chan struct{} // wakes the sender, or causes a connection to be opened
	waitQuota    Quota         // limits the waits of programs
	putQuota     Quota         // limits the values that are put and not committed

	mu sync.Mutex
	requestQueue
	nodeValues
	lastOrder  int // number of the last order received
	fences     map[string]*fence
	endedRanks map[int]string // descriptions of the ends of local ranks, by rank
}

// requestQueue holds the requests to the head. It requires [Node.mu].
type requestQueue struct {
	seq         uint64                   // highest sequence number of a request
	unanswered  []*message               // unanswered requests, in the order of their numbers
	sentCount   int                      // number of them that were sent on the current connection
	acks        []uint64                 // answers that the head may discard
	active      bool                     // this node sent more than the ends of its ranks
	answerChans map[uint64]chan *message // channels that wait for the answer to a request
}

// nodeValues holds the values that are known on this node. It requires [Node.mu].
type nodeValues struct {
	committed     map[valueKey]*committedValue // values committed on this node
	committedSize int                          // total size of committed in bytes
	unsent        []valueKey                   // keys added since the last arrival
	cache         map[valueKey]getResult       // values received from the head
	wanted        map[valueKey]bool            // values that the head requested to be pushed
	pendingGets   map[valueKey]*pendingGet     // gets that wait for the head
}

type committedValue struct {
	bytes  []byte
	writer string // description of the program that put it, for errors
	sent   bool   // the head has it
}

type getResult struct {
	value []byte
	owner string
	err   error
}

type pendingGet struct {
	started time.Time
	waiting map[int]int // number of waiting requests of each rank
	done    chan struct{}
	getResult
}

// invalidRequestError reports an invalid request. Repeating the request does not help.
type invalidRequestError string

func (e invalidRequestError) Error() string { return string(e) }

// errRunOver is the cancellation cause when the node's side stops.
var errRunOver = errors.New("cannot wait any longer: the run is over")

// NewNode returns the node's side. It does nothing until Run is called.
func NewNode(cfg Config) *Node {
	return &Node{
		cfg: cfg, initialGroup: Group{Local: slices.Clone(cfg.Self.Ranks)}, self: &cfg.Self,
		layout: sync.OnceValue(cfg.Layout), wake: make(chan struct{}, 1),
		requestQueue: requestQueue{answerChans: make(map[uint64]chan *message)},
		nodeValues: nodeValues{
			committed: make(map[valueKey]*committedValue), cache: make(map[valueKey]getResult),
			wanted: make(map[valueKey]bool), pendingGets: make(map[valueKey]*pendingGet),
		},
		fences: make(map[string]*fence), endedRanks: make(map[int]string),
	}
}

// queueRequestLocked queues a request for the head and returns its sequence number. It also opens a
// connection if there is none, except for the end of a rank on a node that has sent nothing else:
// that is delayed by [rankEndDelay].
func (n *Node) queueRequestLocked(m *message) uint64 {
	n.seq++
	m.Seq, m.Seqs, n.acks = n.seq, n.acks, nil
	n.unanswered = append(n.unanswered, m)
	if m.Kind == kindRankEnded && !n.active {
		time.AfterFunc(rankEndDelay, func() { ctxutil.NotifyChannel(n.wake) })
		return m.Seq
	}
	n.activateLocked()
	return m.Seq
}

// rankEndDelay is the delay before a node that has sent nothing else reports the end of a rank.
// Usually the whole world ends together, and the report is not needed.
const rankEndDelay = time.Second

// maintainConn connects to the head as soon as there is something to send, and reconnects with
// back-off until ctx ends.
func (n *Node) maintainConn(ctx context.Context) {
	if len(n.initialGroup.Local) == 0 { // the head may order this node to start ranks, so connect now
		ctxutil.NotifyChannel(n.wake)
	}
	const first, longest = 10 * time.Millisecond, time.Second
	wait := first
	for awaitSignal(ctx, n.wake) {
		for ctx.Err() == nil {
			conn, err := n.cfg.Dial(ctx)
			if err == nil && n.useConn(ctx, conn) {
				wait = first
			}
			if !ctxutil.SleepContext(ctx, wait/2+rand.N(wait)) {
				return
			}
			wait = min(2*wait, longest)
		}
	}
}

// useConn uses a connection until it breaks or ctx ends. It reports whether a message was received.
func (n *Node) useConn(ctx context.Context, conn io.ReadWriteCloser) (heard bool) {
	// Start with the numbers of the unanswered requests; then send all of them again.
	n.mu.Lock()
	n.sentCount = 0
	hello := &message{Kind: kindHello}
	for _, m := range n.unanswered {
		hello.Seqs = append(hello.Seqs, m.Seq)
	}
	n.mu.Unlock()
	first := []*message{hello}
	exchangeMessages(ctx, conn, n.wake, func() (next []*message) {
		n.mu.Lock()
		defer n.mu.Unlock()
		next, first = append(first, n.unanswered[n.sentCount:]...), nil
		n.sentCount = len(n.unanswered)
		return next
	}, func(m *message) {
		heard = true
		n.handleMessage(m)
	})
	return heard
}

func (n *Node) handleMessage(m *message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch m.Kind {
	case kindAnswer:
		n.handleAnswerLocked(m)
	case kindRequestPush:
		n.wanted[m.Slot] = true
		n.pushValuesLocked(n.matchCommittedLocked(m.Slot))
	case kindQueryLocalMissing:
		n.queueRequestLocked(&message{Kind: kindLocalMissing, Name: m.Name,
			FenceFields: FenceFields{Number: m.Number, Group: m.Group},
			RankFields:  RankFields{Ranks: n.fences[m.Name].missingRanks(m.Ranks, m.Number)}})
	case kindOrder:
		n.executeOrderLocked(m)
	}
}

// handleAnswerLocked handles the answer to a request. It ignores repeated answers.
func (n *Node) handleAnswerLocked(m *message) {
	at := slices.IndexFunc(n.unanswered, func(p *message) bool { return p.Seq == m.Seq })
	if at < 0 {
		return
	}
	asked := n.unanswered[at]
	n.unanswered = slices.Delete(n.unanswered, at, at+1)
	if at < n.sentCount {
		n.sentCount--
	}
	n.acks = append(n.acks, m.Seq)
	switch asked.Kind {
	case kindEnter:
		n.finishRoundLocked(asked.Name, asked.Number, m.Error, m.Data...)
	case kindGet:
		n.completeGetLocked(asked.Slot, m)
	case kindQueryMissing, kindCall:
		if to := n.answerChans[m.Seq]; to != nil {
			to <- m
			delete(n.answerChans, m.Seq)
		}
	default:
		if m.Error != "" {
			n.cfg.Log.Warn(m.Error)
		}
	}
}

func (n *Node) completeGetLocked(at valueKey, m *message) {
	g := n.pendingGets[at]
	delete(n.pendingGets, at)
	if g == nil {
		return
	}
	switch {
	case m.Invalid:
		g.err = invalidRequestError(m.Error)
	case m.Error != "":
		g.err = errors.New(m.Error)
	case len(m.Entries) == 1:
		g.getResult = getResult{value: m.Entries[0].Value, owner: m.Entries[0].Slot.Owner}
		n.cache[at] = g.getResult // also if requested without an owner
	}
	close(g.done)
}

// matchCommittedLocked returns the keys of the local values that a request matches. Without an
// owner, it matches the values of all owners.
func (n *nodeValues) matchCommittedLocked(at valueKey) (slots []valueKey) {
	if at.Owner != "" {
		return []valueKey{at}
	}
	for own := range n.committed {
		if own.Key == at.Key {
			slots = append(slots, own)
		}
	}
	return slots
}

func (n *Node) pushValuesLocked(slots []valueKey) {
	if entries := n.takeUnsentLocked(slots); len(entries) > 0 {
		n.queueRequestLocked(&message{Kind: kindPush, Entries: entries})
	}
}

// takeUnsentLocked returns those of the given values that were not sent, and marks them as sent.
func (n *nodeValues) takeUnsentLocked(slots []valueKey) (entries []entry) {
	for _, at := range slots {
		if v := n.committed[at]; v != nil && !v.sent {
			v.sent = true
			entries = append(entries, entry{at, v.bytes})
		}
	}
	return entries
}

// unsentEntriesLocked returns the values that were committed and not sent since the last arrival.
func (n *nodeValues) unsentEntriesLocked() []entry {
	slots := n.unsent
	n.unsent = nil
	return n.takeUnsentLocked(slots)
}

// PutValues commits values of a rank of this node. Keys have 1 to 255 printable ASCII characters
// without spaces.
func (n *Node) PutValues(rank int, values map[string][]byte) error {
	return n.commitValues(n.self.ownerName(rank), n.self.describeRank(rank), values)
}

// commitValues makes values available to other programs. owner is the name for requests, writer the
// description for error messages. It commits either all values or, with an error, none.
func (n *Node) commitValues(owner, writer string, values map[string][]byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	// Check the limits and that each key has one writer.
	size := n.committedSize
	for key, bytes := range values {
		size += len(bytes)
		if was := n.committed[valueKey{key, owner}]; was != nil {
			return fmt.Errorf("cannot put %s: it has two writers, %s and %s", key, was.writer, writer)
		}
	}
	if len(n.committed)+len(values) > MaxKeys {
		return fmt.Errorf("cannot put more than %s keys", textutil.GroupThousands(MaxKeys))
	}
	if size > maxDataSize {
		return fmt.Errorf("cannot put more than %d GiB on a node", maxDataSize>>30)
	}
	n.committedSize = size
	n.activateLocked() // the head may request the values
	// Store the values, and push those that the head has already requested.
	var wanted []valueKey
	for key, bytes := range values {
		at := valueKey{key, owner}
		n.committed[at] = &committedValue{bytes: bytes, writer: writer}
		n.unsent = append(n.unsent, at)
		if n.wanted[at] || n.wanted[valueKey{Key: key}] {
			wanted = append(wanted, at)
		}
	}
	n.pushValuesLocked(wanted)
	return nil
}

// awaitValue waits for a value until ctx ends, and returns context.Cause(ctx) unless the deadline
// has passed. rank is the rank that makes the request, -1 for another program.
func (n *Node) awaitValue(ctx context.Context, at valueKey, rank int) getResult {
	if at.Owner != "" && n.layout().nodeOfOwner(at.Owner) == nil {
		return getResult{err: invalidRequestError(fmt.Sprintf("cannot get %s of %q: the world has no such rank "+
			"or node: give a rank's number (0), or n and a node's number (n0)", at.Key, at.Owner))}
	}
	n.mu.Lock()
	// Use the value if it was committed on this node or received before.
	if v := n.committed[at]; v != nil {
		n.mu.Unlock()
		return getResult{value: v.bytes, owner: at.Owner}
	}
	if known, ok := n.cache[at]; ok {
		n.mu.Unlock()
		return known
	}
	// Join a pending request for the same value, or send one to the head.
	g := n.pendingGets[at]
	if g == nil {
		g = &pendingGet{started: time.Now(), waiting: make(map[int]int), done: make(chan struct{})}
		n.pendingGets[at] = g
		n.queueRequestLocked(&message{Kind: kindGet, Slot: at})
	}
	g.waiting[rank]++
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if g.waiting[rank]--; g.waiting[rank] == 0 {
			delete(g.waiting, rank)
		}
	}()
	// Wait for the answer. If the deadline passes, find out which ranks are missing.
	if ctxutil.AwaitDone(ctx, g.done) {
		if g.err != nil {
			return getResult{err: fmt.Errorf("cannot get %s: %w", at.Key, g.err)}
		}
		return g.getResult
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return getResult{err: cause}
	}
	words, _ := n.queryMissing(&message{Kind: kindQueryMissing, Slot: at})
	return getResult{err: fmt.Errorf("cannot get %s in time: %s", at.Key, words)}
}

// queryMissing queries the head for the missing ranks, for at most twice missingTimeout. It returns
// a description, and for a fence the ranks.
func (n *Node) queryMissing(question *message) (words string, ranks []int) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*missingTimeout)
	defer cancel()
	if m, err := n.requestHead(ctx, question); err == nil {
		return m.Text, m.Ranks
	}
	return "unknown, because the head does not respond", nil
}

// AbortJob ends the job on behalf of a rank, with an exit code from 1 to 255. rank is -1 for
// another program.
func (n *Node) AbortJob(rank, code int, words string) {
	n.cfg.AbortJob(rank, code, words)
}

// activateLocked causes a connection to the head to be opened, and wakes the sender.
func (n *Node) activateLocked() {
	n.active = true
	ctxutil.NotifyChannel(n.wake)
}

// ReportRankEnd reports the end of a rank to the head, together with all values that it committed.
// It fails at once the local fences that the rank can no longer enter.
func (n *Node) ReportRankEnd(rank int, words string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, over := n.endedRanks[rank]; over {
		return
	}
	n.endedRanks[rank] = words
	var slots []valueKey
	for at := range n.committed {
		if at.Owner == n.self.ownerName(rank) {
			slots = append(slots, at)
		}
	}
	entered := make(map[string]int)
	for name, f := range n.fences {
		entered[name] = f.entryCounts[rank]
	}
	n.queueRequestLocked(&message{Kind: kindRankEnded, RankFields: RankFields{Rank: rank, Entered: entered},
		Text: words, Entries: n.takeUnsentLocked(slots)})
	for name, f := range n.fences {
		for gen, m := range f.openRounds {
			if slices.Contains(f.Local, rank) && f.entryCounts[rank] < gen && !m.arrivalSent {
				n.finishRoundLocked(name, gen, fmt.Sprintf("rank %d on %s will not arrive: %s", rank,
					n.self.Host, words))
			}
		}
	}
}
