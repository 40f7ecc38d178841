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

// fence is a named barrier that ranks pass repeatedly. Each rank counts its own entries; a round is
// complete when all ranks of the group have entered that many times.
type fence struct {
	Group
	rounds int           // number of times that [Node.Gather] entered all local ranks
	counts map[int]int   // number of entries of each rank
	inside map[int]int   // round in which a rank waits
	owed   map[int]int   // round in which a rank stopped waiting before its release
	open   map[int]*meet // unfinished rounds, by number
}

// meet is one round of a fence on one node.
type meet struct {
	since   time.Time
	collect bool          // deliver all committed values with the release
	sent    bool          // the arrival of all local ranks was reported to the head
	done    chan struct{} // closed when the round is released or has failed
	data    []byte        // data of all nodes; set before done is closed
	err     error
	heirs   int // ranks that have entered and not yet observed the outcome
}

// enter enters a rank into a fence and returns the round. If the rank's previous wait in this fence
// timed out, it continues that wait instead.
func (n *Node) enter(name string, rank int, collect bool) (gen int, m *meet, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case len(n.place.Ranks) == 0 && len(n.world().byRank) == 0:
		return 0, nil, errors.New("cannot fence: this run has no ranks; start it with --ranks or --ranks-per-node")
	case rank < 0:
		return 0, nil, fmt.Errorf("cannot fence: only a rank enters one, and %s is not set here", client.RankVariable)
	}
	n.touchLocked() // open a connection: the head may query this node for missing ranks
	f := n.fenceLocked(name, n.begun)
	if _, twice := f.inside[rank]; twice {
		return 0, nil, fmt.Errorf("cannot enter the fence %s twice: rank %d on %s waits in it already", name, rank, n.place.Host)
	}
	if gen, owed := f.owed[rank]; owed { // continue the wait that timed out
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

// fenceLocked returns the fence with this name. It creates the fence if necessary. It requires
// n.mu.
func (n *Node) fenceLocked(name string, of Group) *fence {
	f := n.fences[name]
	if f == nil {
		f = &fence{Group: of, counts: make(map[int]int), inside: make(map[int]int), owed: make(map[int]int), open: make(map[int]*meet)}
		n.fences[name] = f
	}
	return f
}

// openLocked returns a round of the fence. It creates the round if necessary. It requires the
// node's mu.
func (f *fence) openLocked(gen int) *meet {
	m := f.open[gen]
	if m == nil {
		m = &meet{since: time.Now(), done: make(chan struct{})}
		f.open[gen] = m
	}
	return m
}

// arriveLocked reports the arrival to the head if all local ranks have entered the round. If a
// local rank ended before it entered, the round fails. It requires n.mu.
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

// missing returns those of the given ranks that have not entered the round: all of them if f is
// nil.
func (f *fence) missing(ranks []int, gen int) (missing []int) {
	for _, rank := range ranks {
		if f == nil || f.counts[rank] < gen {
			missing = append(missing, rank)
		}
	}
	return missing
}

// releaseLocked completes a round for the local ranks in it, with data, or with an error if failed
// is not empty. It requires n.mu.
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

// await waits until a round that the rank has entered is released, or until ctx ends. If the
// deadline passes, the error names the missing ranks.
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

// Waiting returns what the programs of this node wait for, in the order of their ranks. It queries
// the head for the ranks that are missing in each fence, which takes at most twice censusTime.
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

// waits returns what the programs wait for, and for each fence round the indexes of its waits in
// that slice.
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

// warningAt returns how long a fence must be incomplete before the next warning is logged,
// given the number of warnings that were logged before.
func warningAt(told int) time.Duration {
	early := []time.Duration{15 * time.Second, 30 * time.Second}
	if told < len(early) {
		return early[told]
	}
	return time.Duration(told-len(early)+1) * time.Minute
}

// looks is the number of warnings that include a diagnosis of the missing ranks. The diagnosis uses
// processor time on a node that may be busy.
const looks = 3

// warn logs a warning for each fence in which local ranks wait for a long time, and names the
// missing ranks. It runs until ctx ends. If several nodes are due to warn, only the first of them
// that queries the head does so.
func (n *Node) warn(ctx context.Context) {
	told := make(map[*meet]int) // number of warnings of each round
	for pause.For(ctx, time.Second) {
		for id, m := range n.late(told) {
			told[m]++
			question := id.question()
			question.Warning = told[m]
			words, ranks := n.who(question)
			if words == "" { // another node has warned, or all ranks have entered
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

// late returns the rounds for which the next warning is due.
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
