package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// fence is a named barrier that ranks pass repeatedly. Each rank counts its own entries; a round is
// complete when all ranks of the group have entered that many times.
type fence struct {
	Group
	entryCounts map[int]int         // number of entries of each rank
	waiting     map[int]int         // round in which a rank waits
	interrupted map[int]int         // round in which a rank stopped waiting before its release
	openRounds  map[int]*fenceRound // unfinished rounds, by number
}

type fenceRound struct {
	started time.Time
	Exchange
	arrivalSent bool          // the arrival of all local ranks was reported to the head
	done        chan struct{} // closed when the round is released or has failed
	data        []byte        // data of all nodes; set before done is closed
	err         error
	waiters     int // ranks that have entered and not yet observed the outcome
}

// Exchange is the data of the ranks of a node in a fence. Its functions may be nil, and must not block.
type Exchange struct {
	Send    func() []byte          // returns the data of this node when all of its ranks have entered
	Receive func(all []byte) error // gets the data of all nodes, concatenated in any order, once
}

// EnterGroup enters a rank of this node into the group's fence, and waits until all ranks of the group
// have entered, or until ctx ends.
func (n *Node) EnterGroup(ctx context.Context, name string, of Group, rank int, data Exchange) error {
	name = of.fenceName(name)
	gen, m, err := n.enterFence(name, of, rank, data)
	if err != nil {
		return err
	}
	return n.awaitRound(ctx, name, gen, m, rank)
}

// enterFence enters a rank into a fence and returns the round. If the rank's previous wait in this
// fence was interrupted, it continues that wait instead.
func (n *Node) enterFence(name string, of Group, rank int, data Exchange) (gen int, m *fenceRound, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case len(n.self.Ranks) == 0 && len(n.layout().nodeByRank) == 0:
		return 0, nil, errors.New("cannot fence: this run has no ranks; start it with --ranks or --ranks-per-node")
	case rank < 0:
		return 0, nil, fmt.Errorf("cannot fence: only ranks can enter a fence, and %s is not set here", RankVariable)
	}
	n.activateLocked() // open a connection: the head may query this node for missing ranks
	f := n.ensureFenceLocked(name, of)
	if _, twice := f.waiting[rank]; twice {
		return 0, nil, fmt.Errorf("cannot enter the fence %s twice: rank %d on %s is already waiting in it",
			name, rank, n.self.Host)
	}
	if gen, owed := f.interrupted[rank]; owed { // continue the wait that timed out
		delete(f.interrupted, rank)
		f.waiting[rank] = gen
		return gen, f.openRounds[gen], nil
	}
	f.entryCounts[rank]++
	gen = f.entryCounts[rank]
	m = f.ensureRoundLocked(gen)
	m.waiters++
	m.Exchange = data
	f.waiting[rank] = gen
	n.reportArrivalLocked(name, gen, m)
	return gen, m, nil
}

func (n *Node) ensureFenceLocked(name string, of Group) *fence {
	f := n.fences[name]
	if f == nil {
		f = &fence{Group: of, entryCounts: make(map[int]int), waiting: make(map[int]int),
			interrupted: make(map[int]int), openRounds: make(map[int]*fenceRound)}
		n.fences[name] = f
	}
	return f
}

func (f *fence) ensureRoundLocked(gen int) *fenceRound {
	m := f.openRounds[gen]
	if m == nil {
		m = &fenceRound{started: time.Now(), done: make(chan struct{})}
		f.openRounds[gen] = m
	}
	return m
}

// reportArrivalLocked reports the arrival to the head if all local ranks have entered the round. If
// a local rank ended before it entered, the round fails. It requires n.mu.
func (n *Node) reportArrivalLocked(name string, gen int, m *fenceRound) {
	f := n.fences[name]
	missing := f.missingRanks(f.Local, gen)
	for _, rank := range missing {
		if words, over := n.endedRanks[rank]; over {
			n.finishRoundLocked(name, gen, fmt.Sprintf("rank %d on %s will not arrive: %s", rank, n.self.Host, words))
			return
		}
	}
	if len(missing) == 0 && !m.arrivalSent {
		m.arrivalSent = true
		arrival := &message{Kind: kindEnter, Name: name, Entries: n.unsentEntriesLocked(),
			FenceFields: FenceFields{Number: gen, Group: f.Ranks, Collect: m.Receive != nil}}
		if m.Send != nil {
			arrival.Data = m.Send()
		}
		n.queueRequestLocked(arrival)
	}
}

func (f *fence) missingRanks(ranks []int, gen int) (missing []int) {
	for _, rank := range ranks {
		if f == nil || f.entryCounts[rank] < gen {
			missing = append(missing, rank)
		}
	}
	return missing
}

// finishRoundLocked completes a round for the local ranks in it, with data, or with an error if
// failed is not empty. It requires n.mu.
func (n *Node) finishRoundLocked(name string, gen int, failed string, data ...byte) {
	f := n.fences[name]
	if f == nil || f.openRounds[gen] == nil {
		return
	}
	m := f.openRounds[gen]
	if ctxutil.AwaitDoneFor(m.done, 0) {
		return
	}
	m.data = data
	if failed == "" && m.Receive != nil {
		m.err = m.Receive(data)
	}
	if failed != "" {
		m.err = fmt.Errorf("cannot pass the fence %s: %s", name, failed)
	}
	close(m.done)
	if n.cfg.OnRoundEnd != nil {
		n.cfg.OnRoundEnd(name, gen, time.Since(m.started), m.err)
	}
}

// awaitRound waits until a round that these ranks have entered is released, or until ctx ends. If the
// deadline passes, the error names the missing ranks.
func (n *Node) awaitRound(ctx context.Context, name string, gen int, m *fenceRound, ranks ...int) error {
	passed := ctxutil.AwaitDone(ctx, m.done)
	n.mu.Lock()
	f := n.fences[name]
	for _, rank := range ranks {
		delete(f.waiting, rank)
		if !passed {
			f.interrupted[rank] = gen
		}
	}
	if passed {
		defer n.mu.Unlock()
		if m.waiters -= len(ranks); m.waiters == 0 && len(f.missingRanks(f.Local, gen)) == 0 {
			delete(f.openRounds, gen)
		}
		return m.err
	}
	n.mu.Unlock()
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	words, _ := n.queryMissing(fenceID{name, gen, f.Ranks}.missingRequest())
	text := fmt.Sprintf("cannot pass the fence %s in time: missing: %s", name, words)
	return waitError{text, context.DeadlineExceeded}
}

// PendingWaits returns what the programs of this node wait for, in the order of their ranks. It
// queries the head for the ranks that are missing in each fence, which takes at most twice
// missingTimeout.
func (n *Node) PendingWaits() []Wait {
	waits, asked := n.collectWaits()
	for id, own := range asked {
		_, missing := n.queryMissing(id.missingRequest())
		for _, i := range own {
			waits[i].Missing = missing
		}
	}
	slices.SortStableFunc(waits, func(a, b Wait) int { return a.Rank - b.Rank })
	return waits
}

func (n *Node) collectWaits() (waits []Wait, in map[fenceID][]int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	in = make(map[fenceID][]int)
	for name, f := range n.fences {
		for rank, gen := range f.waiting {
			id := fenceID{name, gen, f.Ranks}
			in[id] = append(in[id], len(waits))
			waits = append(waits, Wait{Rank: rank, Kind: "fence", Name: name,
				WaitedSeconds: time.Since(f.openRounds[gen].started).Seconds()})
		}
	}
	for at, g := range n.pendingGets {
		for rank := range g.waiting {
			wait := Wait{Rank: rank, Kind: "get", Name: at.Key, WaitedSeconds: time.Since(g.started).Seconds()}
			if owner := ownerRank(at.Owner); owner >= 0 {
				wait.Missing = []int{owner}
			}
			waits = append(waits, wait)
		}
	}
	return waits, in
}

func nextWarningDelay(warned int) time.Duration {
	early := []time.Duration{15 * time.Second, 30 * time.Second}
	if warned < len(early) {
		return early[warned]
	}
	return time.Duration(warned-len(early)+1) * time.Minute
}

// warnOverdueFences logs a warning for each fence in which local ranks wait for a long time, and
// names the missing ranks. It runs until ctx ends. If several nodes are due to warn, only the first
// of them that queries the head does so.
func (n *Node) warnOverdueFences(ctx context.Context) {
	warned := make(map[*fenceRound]int) // number of warnings of each round
	for ctxutil.SleepContext(ctx, time.Second) {
		for id, m := range n.overdueRounds(warned) {
			warned[m]++
			question := id.missingRequest()
			question.Warning = warned[m]
			if words, _ := n.queryMissing(question); words != "" { // otherwise another node has warned
				n.cfg.Log.Warn(fmt.Sprintf("ranks have been waiting in the fence %s since %s; missing: %s "+
					"(bringupd why shows what they are doing)", id.name, m.started.Format(time.TimeOnly), words))
			}
		}
		maps.DeleteFunc(warned, func(m *fenceRound, _ int) bool { return ctxutil.AwaitDoneFor(m.done, 0) })
	}
}

func (n *Node) overdueRounds(warned map[*fenceRound]int) map[fenceID]*fenceRound {
	n.mu.Lock()
	defer n.mu.Unlock()
	late := make(map[fenceID]*fenceRound)
	for name, f := range n.fences {
		for gen, m := range f.openRounds {
			if !ctxutil.AwaitDoneFor(m.done, 0) && time.Since(m.started) >= nextWarningDelay(warned[m]) {
				late[fenceID{name, gen, f.Ranks}] = m
			}
		}
	}
	return late
}
