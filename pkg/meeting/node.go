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

// Config is what a node's side needs.
type Config struct {
	Place Place // this node's
	// World is all nodes of the team. It is asked for once, and only where somebody asks for another node's values: a
	// node of thousands mostly needs to know no more than its own place.
	World func() World
	// Dial makes a connection to the head on which this node is known: Head.Serve's other end.
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
	// Linked waits until it is known whether this node can reach the head, or ctx ends. Its error
	// is why it cannot; rank is that which asks, or -1 for another program. nil: it always can.
	Linked func(ctx context.Context, rank int) error
	// Abort ends the job: who, as "rank 3" or "a program", with a code, 1 to 255, and a message. rank is -1 for no rank.
	Abort func(rank, code int, message string)
	// Met is told that the ranks of this node have left a fence, in that round, which the first of them had
	// entered so long ago, and by which error where not all had come; nil: nobody is told.
	Met func(fence string, round int, took time.Duration, err error)
	// Doing says what these ranks do, for whom others wait long, in lines for people; nil: that is not known.
	Doing func(ctx context.Context, ranks []int) string
	// Do does what the head orders, on a goroutine that Background starts and waits for.
	Do         Operation
	Background func(task func(ctx context.Context))
	Log        *zap.Logger
}

// Node is a node's side: what its programs ask for, and what it asks the head.
type Node struct {
	cfg   Config
	begun Group // the ranks that the run has begun with
	place *Place
	world func() World // the Config's, made once
	kick  chan struct{}
	open  Load // what programs wait for
	puts  Load // what programs have put without commit

	mu      sync.Mutex
	seq     uint64
	pending []*message // requests that are not answered, in their order
	sent    int        // how many of these were sent on the connection that there is
	acks    []uint64   // answers that the head may forget
	touched bool       // there is more to say than that ranks have ended
	own     map[slot]*value
	size    int    // of own's values, in bytes
	unsent  []slot // of own, some of which may have been pushed
	cache   map[slot]found
	wanted  map[slot]bool
	gets    map[slot]*get
	asked   map[uint64]chan *message // whose answer somebody waits for
	orders  int                      // how many of the head's have come
	fences  map[string]*fence
	ended   map[int]string
	events  []client.Event
	watches int           // programs that have asked for events
	seen    int           // how many of the head's events have come
	more    chan struct{} // closed at the next event
}

// value is one that was committed here.
type value struct {
	bytes  []byte
	writer string
	sent   bool
}

type found struct {
	value []byte
	owner string
	err   error
}

// get is a question to the head that some here wait for.
type get struct {
	since   time.Time
	waiting map[int]int // by rank, how many of it
	done    chan struct{}
	found
}

// wrongError is that a question was wrong: no time would help.
type wrongError string

func (e wrongError) Error() string { return string(e) }

// errOver is the cause of a wait that ended with its node's side.
var errOver = errors.New("cannot wait any longer: the run is over")

// NewNode returns the node's side, which Run makes work.
func NewNode(cfg Config) *Node {
	return &Node{
		cfg: cfg, begun: Group{Local: slices.Clone(cfg.Place.Ranks)}, place: &cfg.Place, world: sync.OnceValue(cfg.World), kick: make(chan struct{}, 1), own: make(map[slot]*value), cache: make(map[slot]found),
		wanted: make(map[slot]bool), gets: make(map[slot]*get), asked: make(map[uint64]chan *message),
		fences: make(map[string]*fence), ended: make(map[int]string), more: make(chan struct{}),
	}
}

// askLocked has a request sent.
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

// untouched is how long the end of a rank waits to be told by a node that has had no other news: mostly the whole
// world has ended then, and nobody meets.
const untouched = time.Second

// keep connects to the head as soon as there is anything to say, again and again until ctx ends.
func (n *Node) keep(ctx context.Context) {
	if len(n.begun.Local) == 0 { // nothing here will ever ask, and the head may have it start ranks
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

// talk uses a connection until it or ctx ends. It tells whether anything came on it.
func (n *Node) talk(ctx context.Context, conn io.ReadWriteCloser) (heard bool) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	var writing sync.WaitGroup
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

// write sends what is pending until ctx ends.
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

// receive takes in what the head says.
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

// answeredLocked takes in the answer to a request, once.
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
	n.acks = append(n.acks, m.Seq)
	for i := range m.Entries {
		e := &m.Entries[i]
		n.cache[e.slot] = found{value: e.value, owner: e.Owner}
	}
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
		n.cache[at] = g.found // also by the key alone
	}
	close(g.done)
}

// matchLocked returns what is committed here for a question.
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

// pushLocked sends values that the head has not.
func (n *Node) pushLocked(slots []slot) {
	if entries := n.takeLocked(slots); len(entries) > 0 {
		n.askLocked(&message{Kind: kindPush, Entries: entries})
	}
}

// takeLocked returns those that were not sent, as sent.
func (n *Node) takeLocked(slots []slot) (entries []entry) {
	for _, at := range slots {
		if v := n.own[at]; v != nil && !v.sent {
			v.sent = true
			entries = append(entries, entryOf(at, v.bytes))
		}
	}
	return entries
}

// deltaLocked is what was committed here and not sent.
func (n *Node) deltaLocked() []entry {
	slots := n.unsent
	n.unsent = nil
	return n.takeLocked(slots)
}

// Put makes values known that a rank of this node has put. Keys must be as Client.Put has them.
func (n *Node) Put(rank int, values map[string][]byte) error {
	return n.commit(n.place.owner(rank), n.place.words(rank), values)
}

// Fence waits until all ranks of the world have entered the fence of this name as often as this one, or until ctx ends.
func (n *Node) Fence(ctx context.Context, name string, rank int, collect bool) error {
	gen, m, err := n.enter(name, rank, collect)
	if err != nil {
		return err
	}
	return n.await(ctx, name, rank, gen, m)
}

// commit makes what somebody has put known.
func (n *Node) commit(owner, writer string, values map[string][]byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
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
	n.touchLocked() // to hear what the head wants
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

// get waits for a value until ctx ends, whose cause is the deadline or the client's end. rank is who asks.
func (n *Node) get(ctx context.Context, at slot, rank int) found {
	if at.Owner != "" && n.world().home(at.Owner) == nil {
		return found{err: wrongError(fmt.Sprintf("cannot get %s of %q: an owner is a rank's number, or n and a node's", at.Key, at.Owner))}
	}
	n.mu.Lock()
	if v := n.own[at]; v != nil {
		n.mu.Unlock()
		return found{value: v.bytes, owner: at.Owner}
	}
	if known, ok := n.cache[at]; ok {
		n.mu.Unlock()
		return known
	}
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

// who asks the head who is missing, a short time; it returns that in words, and the ranks in a fence.
func (n *Node) who(question *message) (words string, ranks []int) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*censusTime)
	defer cancel()
	if m, err := n.ask(ctx, question); err == nil {
		return m.Words, m.Ranks
	}
	return "not known now: the head does not answer", nil
}

// Abort ends the job, as a rank of this node wants it, with a code from 1 to 255; -1 is no rank.
func (n *Node) Abort(rank, code int, words string) {
	who := n.place.words(rank)
	n.mu.Lock()
	n.askLocked(&message{Kind: kindAbort, Event: &client.Event{Kind: "aborted", Who: who, What: words, Code: code}})
	n.mu.Unlock()
	n.cfg.Abort(rank, code, words)
}

// listenLocked has the head's events come, also where nothing else is asked of it.
func (n *Node) listenLocked() {
	if n.watches++; n.watches == 1 {
		n.askLocked(&message{Kind: kindListen, Events: n.seen, Listen: true})
	}
}

// touchLocked has a connection made.
func (n *Node) touchLocked() {
	n.touched = true
	pause.Ring(n.kick)
}

func (n *Node) tellLocked(event client.Event) {
	n.events = append(n.events, event)
	close(n.more)
	n.more = make(chan struct{})
}

// RankEnded tells that a rank of this node has ended, and how: who waits for it is told at once.
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
