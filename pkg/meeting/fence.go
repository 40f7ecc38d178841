package meeting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/meeting/client"
	"github.com/bringupd/bringupd/pkg/pause"
)

// fence is one name, at which ranks meet again and again: each of them counts its own entries, and a generation is over
// when all have come as often.
type fence struct {
	Group
	rounds int         // how often all of this node were brought, by Gather
	counts map[int]int // by rank
	inside map[int]int // the generation that a rank waits in
	owed   map[int]int // the generation that a rank has stopped to wait in
	open   map[int]*meet
}

// meet is one generation of a fence, on one node.
type meet struct {
	since   time.Time
	collect bool
	sent    bool // all of this node have come
	done    chan struct{}
	data    []byte // of all nodes, once it is done
	err     error
	heirs   int // ranks that have entered and not heard of its end
}

// enter enters a rank into a fence.
func (n *Node) enter(name string, rank int, collect bool) (gen int, m *meet, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case len(n.place.Ranks) == 0 && len(n.world().byRank) == 0:
		return 0, nil, errors.New("cannot fence: this run has no ranks; start it with --ranks or --ranks-per-node")
	case rank < 0:
		return 0, nil, fmt.Errorf("cannot fence: only a rank enters one, and %s is not set here", client.RankVariable)
	}
	n.touchLocked() // the head may ask who is missing
	f := n.fenceLocked(name, n.begun)
	if _, twice := f.inside[rank]; twice {
		return 0, nil, fmt.Errorf("cannot enter the fence %s twice: rank %d on %s waits in it already", name, rank, n.place.Host)
	}
	if gen, owed := f.owed[rank]; owed { // it goes on to wait
		delete(f.owed, rank)
		f.inside[rank] = gen
		return gen, f.open[gen], nil
	}
	f.counts[rank]++
	gen = f.counts[rank]
	m = f.openLocked(gen)
	m.heirs++
	m.collect = m.collect || collect
	f.inside[rank] = gen
	n.arriveLocked(name, gen, m)
	return gen, m, nil
}

func (n *Node) fenceLocked(name string, of Group) *fence {
	f := n.fences[name]
	if f == nil {
		f = &fence{Group: of, counts: make(map[int]int), inside: make(map[int]int), owed: make(map[int]int), open: make(map[int]*meet)}
		n.fences[name] = f
	}
	return f
}

func (f *fence) openLocked(gen int) *meet {
	m := f.open[gen]
	if m == nil {
		m = &meet{since: time.Now(), done: make(chan struct{})}
		f.open[gen] = m
	}
	return m
}

// arriveLocked tells the head once all ranks of this node have come, or that one never will.
func (n *Node) arriveLocked(name string, gen int, m *meet) {
	f := n.fences[name]
	missing := f.missing(f.Local, gen)
	for _, rank := range missing {
		if words, over := n.ended[rank]; over {
			n.releaseLocked(name, gen, fmt.Sprintf("rank %d on %s will never come: %s", rank, n.place.Host, words))
			return
		}
	}
	if len(missing) == 0 && !m.sent {
		m.sent = true
		n.askLocked(&message{Kind: kindEnter, Name: name, Gen: gen, Collect: m.collect, Entries: n.deltaLocked()})
	}
}

// missing returns which of these ranks have not come. Where f is nil none has.
func (f *fence) missing(ranks []int, gen int) (missing []int) {
	for _, rank := range ranks {
		if f == nil || f.counts[rank] < gen {
			missing = append(missing, rank)
		}
	}
	return missing
}

// releaseLocked ends a generation for those of this node who are in it.
func (n *Node) releaseLocked(name string, gen int, failed string, data ...byte) {
	f := n.fences[name]
	if f == nil || f.open[gen] == nil {
		return
	}
	m := f.open[gen]
	if pause.Until(m.done, 0) {
		return
	}
	if m.data = data; failed != "" {
		m.err = fmt.Errorf("cannot pass the fence %s: %s", name, failed)
	} else if n.watches > 0 {
		n.tellLocked(client.Event{Kind: "fence", Who: name, What: "all have entered"})
	}
	close(m.done)
	if n.cfg.Met != nil {
		n.cfg.Met(name, gen, time.Since(m.since), m.err)
	}
}

// await waits for a fence that the rank has entered, until ctx ends.
func (n *Node) await(ctx context.Context, name string, rank, gen int, m *meet) error {
	if pause.Await(ctx, m.done) {
		n.mu.Lock()
		defer n.mu.Unlock()
		f := n.fences[name]
		delete(f.inside, rank)
		if m.heirs--; m.heirs == 0 && len(f.missing(f.Local, gen)) == 0 {
			delete(f.open, gen)
		}
		return m.err
	}
	n.mu.Lock()
	f := n.fences[name]
	delete(f.inside, rank)
	f.owed[rank] = gen
	n.mu.Unlock()
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	words, _ := n.who(fenceID{name, gen, f.Ranks}.question())
	return fmt.Errorf("cannot pass the fence %s in time: missing are %s", name, words)
}

// Waiting returns what the programs of this node wait for, in the order of their ranks. Who is missing in a fence is asked
// of the head, which takes twice censusTime at most.
func (n *Node) Waiting() []client.Wait {
	waits, asked := n.waits()
	for id, own := range asked {
		_, missing := n.who(id.question())
		for _, i := range own {
			waits[i].Missing = missing
		}
	}
	slices.SortStableFunc(waits, func(a, b client.Wait) int { return a.Rank - b.Rank })
	return waits
}

// waits returns what the programs wait for, and which of it is in which fence.
func (n *Node) waits() (waits []client.Wait, in map[fenceID][]int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	in = make(map[fenceID][]int)
	for name, f := range n.fences {
		for rank, gen := range f.inside {
			id := fenceID{name, gen, f.Ranks}
			in[id] = append(in[id], len(waits))
			waits = append(waits, client.Wait{Rank: rank, Kind: "fence", Name: name, SinceS: time.Since(f.open[gen].since).Seconds()})
		}
	}
	for at, g := range n.gets {
		for rank := range g.waiting {
			wait := client.Wait{Rank: rank, Kind: "get", Name: at.Key, SinceS: time.Since(g.since).Seconds()}
			if owner := rankOf(at.Owner); owner >= 0 {
				wait.Missing = []int{owner}
			}
			waits = append(waits, wait)
		}
	}
	return waits, in
}

// warningAt is how long a fence lasts until people are told who is missing, who have been told so often.
func warningAt(told int) time.Duration {
	early := []time.Duration{15 * time.Second, 30 * time.Second}
	if told < len(early) {
		return early[told]
	}
	return time.Duration(told-len(early)+1) * time.Minute
}

// looks is how often it is told what the missing do: to look at them takes processor time of a node that may be at work.
const looks = 3

// warn tells of fences that somebody here waits in, and of who is missing, until ctx ends: on the node that asks the head
// first, for all.
func (n *Node) warn(ctx context.Context) {
	told := make(map[*meet]int) // how often
	for pause.For(ctx, time.Second) {
		for id, m := range n.late(told) {
			told[m]++
			question := id.question()
			question.Warning = told[m]
			words, ranks := n.who(question)
			if words == "" { // another node has told, or all have come
				continue
			}
			if told[m] <= looks && n.cfg.Doing != nil {
				words += "\n" + n.cfg.Doing(ctx, ranks)
			}
			n.cfg.Log.Warn(fmt.Sprintf("ranks wait in the fence %s since %s; missing are %s", id.name, m.since.Format(time.TimeOnly), words))
		}
		maps.DeleteFunc(told, func(m *meet, _ int) bool { return pause.Until(m.done, 0) })
	}
}

// late returns the fences of which it is time to tell.
func (n *Node) late(told map[*meet]int) map[fenceID]*meet {
	n.mu.Lock()
	defer n.mu.Unlock()
	late := make(map[fenceID]*meet)
	for name, f := range n.fences {
		for gen, m := range f.open {
			if !pause.Until(m.done, 0) && time.Since(m.since) >= warningAt(told[m]) {
				late[fenceID{name, gen, f.Ranks}] = m
			}
		}
	}
	return late
}
