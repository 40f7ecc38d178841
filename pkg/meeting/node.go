package meeting

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/meeting/client"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Config holds the parameters of a node's side.
type Config struct {
	Place Place // this node and its ranks
	// World returns all nodes of the team. It is called at most once, and only when a program requests
	// a value of another node: most nodes of a large team need only their own place.
	World func() World
	// Dial opens a connection to the head, authenticated as this node. [Head.Serve] serves the other
	// end.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	// Linked waits until it is known whether this node can reach the head, or until ctx ends. It
	// returns the reason if it cannot. rank is the rank that makes the request, -1 for another
	// program. A nil function means that the head is always reachable.
	Linked func(ctx context.Context, rank int) error
	// Abort ends the job with an exit code from 1 to 255 and a message. rank is the rank that
	// requested it, -1 for another program.
	Abort func(rank, code int, message string)
	// Met is called when a round of a fence has finished for the ranks of this node, with the time
	// since the first of them entered. err is not nil if the round failed. The function may be nil.
	Met func(fence string, round int, took time.Duration, err error)
	// Doing describes in lines of text what the given ranks are doing, for a warning that others wait
	// for them. The function may be nil.
	Doing func(ctx context.Context, ranks []int) string
	// Do executes an order of the head, on a goroutine that Background starts and waits for.
	Do         Operation
	Background func(task func(ctx context.Context))
	Log        *zap.Logger
}

// Node is the node's side of the rendezvous. It serves the requests of the node's programs and
// sends requests to the head. Methods whose names end in Locked require n.mu.
type Node struct {
	cfg   Config
	begun Group // the ranks that the run began with
	place *Place
	world func() World  // [Config.World], called at most once
	kick  chan struct{} // wakes the sender, or causes a connection to be opened
	open  Load          // limits the waits of programs
	puts  Load          // limits the values that are put and not committed

	mu      sync.Mutex
	seq     uint64                   // highest sequence number of a request
	pending []*message               // unanswered requests, in the order of their numbers
	sent    int                      // number of [Node.pending] that were sent on the current connection
	acks    []uint64                 // answers that the head may discard
	touched bool                     // this node sent more than the ends of its ranks
	own     map[slot]*value          // values committed on this node
	size    int                      // total size of [Node.own] in bytes
	unsent  []slot                   // keys added since the last arrival; some may have been pushed
	cache   map[slot]found           // values received from the head
	wanted  map[slot]bool            // values that the head requested to be pushed
	gets    map[slot]*get            // gets that wait for the head
	asked   map[uint64]chan *message // channels that wait for the answer to a request
	orders  int                      // number of the last order received
	fences  map[string]*fence
	ended   map[int]string // descriptions of the ends of local ranks, by rank
	events  []client.Event
	watches int           // programs that watch events
	seen    int           // number of events received from the head
	more    chan struct{} // closed at the next event
}

// value is a value that was committed on this node.
type value struct {
	bytes  []byte
	writer string // description of the program that put it, for errors
	sent   bool   // the head has it
}

// found is the result of a get.
type found struct {
	value []byte
	owner string
	err   error
}

// get is a pending get that was sent to the head.
type get struct {
	since   time.Time
	waiting map[int]int // number of waiting requests of each rank
	done    chan struct{}
	found
}

// wrongError reports an invalid request. Repeating the request does not help.
type wrongError string

func (e wrongError) Error() string { return string(e) }

// errOver is the cancellation cause when the node's side stops.
var errOver = errors.New("cannot wait any longer: the run is over")

// NewNode returns the node's side. It does nothing until Run is called.
func NewNode(cfg Config) *Node {
	return &Node{
		cfg: cfg, begun: Group{Local: slices.Clone(cfg.Place.Ranks)}, place: &cfg.Place, world: sync.OnceValue(cfg.World), kick: make(chan struct{}, 1), own: make(map[slot]*value), cache: make(map[slot]found),
		wanted: make(map[slot]bool), gets: make(map[slot]*get), asked: make(map[uint64]chan *message),
		fences: make(map[string]*fence), ended: make(map[int]string), more: make(chan struct{}),
	}
}

// askLocked queues a request for the head and returns its sequence number. It also opens a
// connection if there is none, except for the end of a rank on a node that has sent nothing else:
// that is delayed by [untouched].
func (n *Node) askLocked(m *message) uint64 {
	n.seq++
	m.Seq, m.Seqs, n.acks = n.seq, n.acks, nil
	n.pending = append(n.pending, m)
	if m.Kind == kindEnded && !n.touched {
		time.AfterFunc(untouched, func() { pause.Ring(n.kick) })
		return m.Seq
	}
	n.touchLocked()
	return m.Seq
}

// untouched is the delay before a node that has sent nothing else reports the end of a rank.
// Usually the whole world ends together, and the report is not needed.
const untouched = time.Second

// keep connects to the head as soon as there is something to send, and reconnects with back-off
// until ctx ends.
func (n *Node) keep(ctx context.Context) {
	if len(n.begun.Local) == 0 { // the head may order this node to start ranks, so connect now
		pause.Ring(n.kick)
	}
	const first, most = 10 * time.Millisecond, time.Second
	wait := first
	for rung(ctx, n.kick) {
		for ctx.Err() == nil {
			conn, err := n.cfg.Dial(ctx)
			if err == nil && n.talk(ctx, conn) {
				wait = first
			}
			if !pause.For(ctx, wait/2+rand.N(wait)) {
				return
			}
			wait = min(2*wait, most)
		}
	}
}

// talk uses a connection until it breaks or ctx ends. It reports whether a message was received.
func (n *Node) talk(ctx context.Context, conn io.ReadWriteCloser) (heard bool) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	var writing sync.WaitGroup
	// Start with the numbers of the unanswered requests; then send all of them again.
	n.mu.Lock()
	n.sent = 0
	hello := &message{Kind: kindHello, Events: n.seen, Listen: n.watches > 0}
	for _, m := range n.pending {
		hello.Seqs = append(hello.Seqs, m.Seq)
	}
	n.mu.Unlock()
	writing.Go(func() {
		defer cancel()
		n.write(ctx, conn, hello)
	})
	in := bufio.NewReader(conn)
	for {
		m, err := read(in)
		if err != nil {
			break
		}
		heard = true
		n.receive(m)
	}
	cancel()
	stop()
	_ = conn.Close()
	writing.Wait()
	return heard
}

// write sends hello and then the pending requests until ctx ends or a write fails.
func (n *Node) write(ctx context.Context, conn io.ReadWriteCloser, hello *message) {
	out := bufio.NewWriter(conn)
	if hello.write(out) != nil {
		return
	}
	for {
		n.mu.Lock()
		fresh := slices.Clone(n.pending[n.sent:])
		n.sent = len(n.pending)
		n.mu.Unlock()
		for _, m := range fresh {
			if m.write(out) != nil {
				return
			}
		}
		if out.Flush() != nil {
			return
		}
		if len(fresh) == 0 && !rung(ctx, n.kick) {
			return
		}
	}
}

// receive handles a message of the head.
func (n *Node) receive(m *message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch m.Kind {
	case kindAnswer:
		n.answeredLocked(m)
	case kindWant:
		n.wanted[m.Slot] = true
		n.pushLocked(n.matchLocked(m.Slot))
	case kindCensus:
		n.askLocked(&message{Kind: kindHere, Name: m.Name, Gen: m.Gen, Of: m.Of, Ranks: n.fences[m.Name].missing(m.Ranks, m.Gen)})
	case kindOrder:
		n.orderedLocked(m)
	case kindEvent:
		if m.Events == n.seen+1 {
			n.seen++
			n.tellLocked(*m.Event)
		}
	}
}

// answeredLocked handles the answer to a request. It ignores repeated answers.
func (n *Node) answeredLocked(m *message) {
	at := slices.IndexFunc(n.pending, func(p *message) bool { return p.Seq == m.Seq })
	if at < 0 {
		return
	}
	asked := n.pending[at]
	n.pending = slices.Delete(n.pending, at, at+1)
	if at < n.sent {
		n.sent--
	}
	// Acknowledge the answer with the next request, and keep the values that came with it.
	n.acks = append(n.acks, m.Seq)
	for i := range m.Entries {
		e := &m.Entries[i]
		n.cache[e.slot] = found{value: e.value, owner: e.Owner}
	}
	// Deliver the result.
	switch asked.Kind {
	case kindEnter:
		n.releaseLocked(asked.Name, asked.Gen, m.Error, m.data...)
	case kindGet:
		n.gotLocked(asked.Slot, m)
	case kindWho, kindCall:
		if to := n.asked[m.Seq]; to != nil {
			to <- m
			delete(n.asked, m.Seq)
		}
	default:
		if m.Error != "" {
			n.cfg.Log.Warn(m.Error)
		}
	}
}

// gotLocked completes a get with the head's answer.
func (n *Node) gotLocked(at slot, m *message) {
	g := n.gets[at]
	delete(n.gets, at)
	if g == nil {
		return
	}
	switch {
	case m.Wrong:
		g.err = wrongError(m.Error)
	case m.Error != "":
		g.err = errors.New(m.Error)
	case len(m.Entries) == 1:
		g.found = found{value: m.Entries[0].value, owner: m.Entries[0].Owner}
		n.cache[at] = g.found // also if requested without an owner
	}
	close(g.done)
}

// matchLocked returns the keys of the local values that a request matches. Without an owner, it
// matches the values of all owners.
func (n *Node) matchLocked(at slot) (slots []slot) {
	if at.Owner != "" {
		return []slot{at}
	}
	for own := range n.own {
		if own.Key == at.Key {
			slots = append(slots, own)
		}
	}
	return slots
}

// pushLocked sends those of the given values that the head does not have.
func (n *Node) pushLocked(slots []slot) {
	if entries := n.takeLocked(slots); len(entries) > 0 {
		n.askLocked(&message{Kind: kindPush, Entries: entries})
	}
}

// takeLocked returns those of the given values that were not sent, and marks them as sent.
func (n *Node) takeLocked(slots []slot) (entries []entry) {
	for _, at := range slots {
		if v := n.own[at]; v != nil && !v.sent {
			v.sent = true
			entries = append(entries, entryOf(at, v.bytes))
		}
	}
	return entries
}

// deltaLocked returns the values that were committed and not sent since the last arrival.
func (n *Node) deltaLocked() []entry {
	slots := n.unsent
	n.unsent = nil
	return n.takeLocked(slots)
}

// Put commits values of a rank of this node. Keys have 1 to 255 printable ASCII characters without
// spaces.
func (n *Node) Put(rank int, values map[string][]byte) error {
	return n.commit(n.place.owner(rank), n.place.words(rank), values)
}

// Fence waits until all ranks of the world have entered the named fence as often as this rank, or
// until ctx ends.
func (n *Node) Fence(ctx context.Context, name string, rank int, collect bool) error {
	gen, m, err := n.enter(name, rank, collect)
	if err != nil {
		return err
	}
	return n.await(ctx, name, rank, gen, m)
}

// commit makes values available to other programs. owner is the name for requests, writer the
// description for error messages. It commits either all values or, with an error, none.
func (n *Node) commit(owner, writer string, values map[string][]byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	// Check the limits and that each key has one writer.
	size := n.size
	for key, bytes := range values {
		size += len(bytes)
		if was := n.own[slot{key, owner}]; was != nil {
			return fmt.Errorf("cannot put %s: it has two writers, %s and %s", key, was.writer, writer)
		}
	}
	if len(n.own)+len(values) > client.MostKeys {
		return fmt.Errorf("cannot put more than %s keys", prose.Grouped(client.MostKeys))
	}
	if size > mostData {
		return fmt.Errorf("cannot put more than %d GiB on a node", mostData>>30)
	}
	n.size = size
	n.touchLocked() // the head may request the values
	// Store the values, and push those that the head has already requested.
	var wanted []slot
	for key, bytes := range values {
		at := slot{key, owner}
		n.own[at] = &value{bytes: bytes, writer: writer}
		n.unsent = append(n.unsent, at)
		if n.wanted[at] || n.wanted[slot{Key: key}] {
			wanted = append(wanted, at)
		}
	}
	n.pushLocked(wanted)
	return nil
}

// get waits for a value until ctx ends, and returns context.Cause(ctx) unless the deadline has
// passed. rank is the rank that makes the request, -1 for another program.
func (n *Node) get(ctx context.Context, at slot, rank int) found {
	if at.Owner != "" && n.world().home(at.Owner) == nil {
		return found{err: wrongError(fmt.Sprintf("cannot get %s of %q: an owner is a rank's number, or n and a node's", at.Key, at.Owner))}
	}
	n.mu.Lock()
	// Use the value if it was committed on this node or received before.
	if v := n.own[at]; v != nil {
		n.mu.Unlock()
		return found{value: v.bytes, owner: at.Owner}
	}
	if known, ok := n.cache[at]; ok {
		n.mu.Unlock()
		return known
	}
	// Join a pending request for the same value, or send one to the head.
	g := n.gets[at]
	if g == nil {
		g = &get{since: time.Now(), waiting: make(map[int]int), done: make(chan struct{})}
		n.gets[at] = g
		n.askLocked(&message{Kind: kindGet, Slot: at})
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
	if pause.Await(ctx, g.done) {
		if g.err != nil {
			return found{err: fmt.Errorf("cannot get %s: %w", at.Key, g.err)}
		}
		return g.found
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return found{err: cause}
	}
	words, _ := n.who(&message{Kind: kindWho, Slot: at})
	return found{err: fmt.Errorf("cannot get %s in time: %s", at.Key, words)}
}

// who queries the head for the missing ranks, for at most twice censusTime. It returns a
// description, and for a fence the ranks.
func (n *Node) who(question *message) (words string, ranks []int) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*censusTime)
	defer cancel()
	if m, err := n.ask(ctx, question); err == nil {
		return m.Words, m.Ranks
	}
	return "not known now: the head does not answer", nil
}

// Abort ends the job on behalf of a rank, with an exit code from 1 to 255. rank is -1 for another
// program.
func (n *Node) Abort(rank, code int, words string) {
	who := n.place.words(rank)
	n.mu.Lock()
	n.askLocked(&message{Kind: kindAbort, Event: &client.Event{Kind: "aborted", Who: who, What: words, Code: code}})
	n.mu.Unlock()
	n.cfg.Abort(rank, code, words)
}

// listenLocked subscribes to the head's events when the first program starts to watch.
func (n *Node) listenLocked() {
	if n.watches++; n.watches == 1 {
		n.askLocked(&message{Kind: kindListen, Events: n.seen, Listen: true})
	}
}

// touchLocked causes a connection to the head to be opened, and wakes the sender.
func (n *Node) touchLocked() {
	n.touched = true
	pause.Ring(n.kick)
}

// tellLocked appends an event and wakes the programs that watch.
func (n *Node) tellLocked(event client.Event) {
	n.events = append(n.events, event)
	close(n.more)
	n.more = make(chan struct{})
}

// RankEnded reports the end of a rank to the head, together with all values that it committed. It
// fails at once the local fences that the rank can no longer enter.
func (n *Node) RankEnded(rank int, words string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, over := n.ended[rank]; over {
		return
	}
	n.ended[rank] = words
	var slots []slot
	for at := range n.own {
		if at.Owner == n.place.owner(rank) {
			slots = append(slots, at)
		}
	}
	entered := make(map[string]int)
	for name, f := range n.fences {
		entered[name] = f.counts[rank]
	}
	n.askLocked(&message{Kind: kindEnded, Rank: rank, Words: words, Entries: n.takeLocked(slots), Entered: entered})
	for name, f := range n.fences {
		for gen, m := range f.open {
			if slices.Contains(f.Local, rank) && f.counts[rank] < gen && !m.sent {
				n.releaseLocked(name, gen, fmt.Sprintf("rank %d on %s will never come: %s", rank, n.place.Host, words))
			}
		}
	}
}
