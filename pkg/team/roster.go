package team

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Roster is who is in the team, as the head has it. Without spares it is all
// nodes from the start, and never changes.
type Roster struct {
	size   int
	bounds Bounds
	spares bool // the job can do without some of its nodes
	ranked bool // what runs on the members is told its place

	mu      sync.Mutex
	record  signal.TeamRecord          // the newest; guarded by mu
	changed chan struct{}              // closed and replaced by each new team; guarded by mu
	gone    map[int]signal.DroppedRank // guarded by mu
	joined  map[int]bool               // at any look so far: a listing may be an old one; guarded by mu
	spoke   map[int]bool               // have told themselves why they go; guarded by mu
	excused []health.Observed          // what has failed and ended nothing so far; guarded by mu
	open    bool                       // the team stays as it is; guarded by mu
	coming                             // guarded by mu
	pending                            // guarded by mu
}

// coming is how the nodes become ready.
type coming struct {
	ready int       // how many were at the last look
	since time.Time // when that number last grew
	full  time.Time // when they were first as many as the driver may get
}

// pending is what Excuse has held back.
type pending struct {
	held  []health.Observed // failed checks that the records of other nodes will judge
	ended bool              // nothing is held any more
}

// NewRoster returns the roster of a launch of size nodes, of which bounds.Of(size)
// are wanted. What runs on the members is told its place where they are ranked.
func NewRoster(size int, bounds Bounds, ranked bool) *Roster {
	r := &Roster{
		size: size, bounds: bounds.Of(size), ranked: ranked,
		changed: make(chan struct{}), gone: make(map[int]signal.DroppedRank), joined: make(map[int]bool), spoke: make(map[int]bool),
	}
	r.spares = r.bounds.Min < size
	r.record.Generation = -1
	if !r.spares {
		for rank := range size {
			r.record.Members = append(r.record.Members, signal.Member{Rank: rank})
		}
	}
	return r
}

// Exclude keeps nodes out of the team from the start. Their daemons end with the job.
func (r *Roster) Exclude(unfit []signal.DroppedRank) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, dropped := range unfit {
		r.gone[dropped.Rank], r.spoke[dropped.Rank] = dropped, true
	}
}

// Spares tells whether the job can do without some of its nodes.
func (r *Roster) Spares() bool { return r.spares }

// Team returns the present team, nil before there is one, and what is closed
// when there is another.
func (r *Roster) Team() ([]signal.Member, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Members, r.changed
}

// Ranks are the team's in the launch, by their place.
func (r *Roster) Ranks() []int {
	members, _ := r.Team()
	ranks := make([]int, 0, len(members))
	for _, member := range members {
		ranks = append(ranks, member.Rank)
	}
	return ranks
}

// Count is how many nodes the driver gets: all before there is a team.
func (r *Roster) Count() int {
	if members, _ := r.Team(); members != nil {
		return len(members)
	}
	return r.size
}

// Among are those of the ranks that are in the team: all before there is one.
func (r *Roster) Among(ranks []int) []int {
	if !r.spares {
		return ranks
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(ranks, func(rank int) bool {
		return r.record.Members != nil && r.record.Place(rank) < 0
	})
}

// Missing are the team's ranks, in order, that the listing does not show in
// state: all that it does not show, before there is a team.
func (r *Roster) Missing(l signal.Listing, state string) []int {
	members, _ := r.Team()
	if !r.spares || members == nil {
		return l.Missing(state, r.size)
	}
	shown := make(map[string][]int)
	var missing []int
	for _, member := range members {
		own := state
		if state == signal.Up {
			own = signal.UpSince(member.Since)
		}
		if _, known := shown[own]; !known {
			shown[own] = l.Ranks(own)
		}
		if _, there := slices.BinarySearch(shown[own], member.Rank); !there {
			missing = append(missing, member.Rank)
		}
	}
	slices.Sort(missing)
	return missing
}

// Living are the peers whose beats the head should see, the members or those
// that stand by: before the gate all are waited for alike.
func (r *Roster) Living(expected map[int]int64, standby bool) map[int]int64 {
	if !r.spares {
		if standby {
			return nil
		}
		return expected
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	living := maps.Clone(expected)
	maps.DeleteFunc(living, func(rank int, _ int64) bool {
		_, gone := r.gone[rank]
		return gone || standby != (r.open && r.record.Place(rank) < 0)
	})
	return living
}

// Next returns the record of the team that there should be after this look; nil
// where it is the one there is.
func (r *Roster) Next(ready []int, now time.Time, patience time.Duration) *signal.TeamRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.spares || r.open {
		return nil
	}
	if len(ready) > r.ready {
		r.ready, r.since = len(ready), now
	}
	if len(ready) >= r.bounds.Max && r.full.IsZero() {
		r.full = now
	}
	m := muster{
		size: r.size, bounds: r.bounds, ready: ready, gone: r.gone,
		patient: !r.since.IsZero() && now.Sub(r.since) >= patience,
		settled: !r.full.IsZero() && now.Sub(r.full) >= settleTeam,
	}
	for _, member := range r.record.Members {
		m.team = append(m.team, member.Rank)
	}
	team, possible := m.choose()
	if !possible || team == nil || slices.Equal(team, m.team) {
		return nil
	}
	generation := r.record.Generation + 1
	return &signal.TeamRecord{
		Generation: generation, Members: seated(r.record.Members, team, generation, r.ranked), Dropped: r.droppedLocked(),
	}
}

// settleTeam is how long the head sees whether lower ranks are about to come.
const settleTeam = 250 * time.Millisecond

// Take makes a record that has been published the present one.
func (r *Roster) Take(record *signal.TeamRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record = *record
	close(r.changed)
	r.changed = make(chan struct{})
}

// Freeze keeps the team as it is from now on, if it is the one of changed and
// all of it can still be had.
func (r *Roster) Freeze(changed <-chan struct{}) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, member := range r.record.Members {
		if _, gone := r.gone[member.Rank]; gone {
			return false
		}
	}
	r.open = r.open || changed == r.changed
	return r.open
}

// Excuse takes in what was seen to fail, and tells whether the job goes on: it
// does where the driver needs none of the nodes that it speaks of. It is news
// where one of them was not known to be gone. The head is always needed.
func (r *Roster) Excuse(seen health.Observed, hostOf func(int) string) (goesOn, news bool) {
	blamed := seen.Lost
	if len(blamed) == 0 {
		blamed = []int{seen.Rank}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(seen.Lost) == 0 {
		r.spoke[seen.Rank] = true
	}
	if health.Kind(seen.Kind) == health.CheckEnvironment && !r.ended {
		r.held = append(r.held, seen)
		return true, false
	}
	if !r.spares || slices.Contains(blamed, 0) || !r.open && Mistaken(health.Kind(seen.Kind)) {
		return false, false
	}
	if r.open && slices.ContainsFunc(blamed, func(rank int) bool { return r.record.Place(rank) >= 0 }) {
		return false, false
	}
	for _, rank := range blamed {
		if _, gone := r.gone[rank]; !gone {
			news = true
			r.gone[rank] = signal.DroppedRank{Rank: rank, Host: hostOf(rank), Why: seen.What}
		}
	}
	if !r.open && r.size-len(r.gone) < r.bounds.Min {
		return false, false
	}
	if news {
		r.excused = append(r.excused, seen)
	}
	return true, news
}

// ReleaseHeld calls observe, once for each, with the failed checks that Excuse has held back and that can
// be judged by now, as health.Weigh judges them by the nodes that have passed theirs.
func (r *Roster) ReleaseHeld(passed []int, earlier func() []signal.FailedRecord, observe func(signal.FailedRecord, time.Time)) {
	r.mu.Lock()
	held := r.held
	if len(held) == 0 || time.Now().Before(health.Undecided(held, passed, r.size)) {
		r.mu.Unlock()
		return
	}
	r.held = nil
	r.mu.Unlock()
	for _, seen := range health.Weigh(held, passed, earlier) {
		observe(seen.FailedRecord, seen.At)
	}
}

// TakeHeld hands over what is held back, for the verdict, and has Excuse hold nothing back any more.
func (r *Roster) TakeHeld() []health.Observed {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.held
	r.held, r.ended = nil, true
	return held
}

// Mistaken tells whether a failure is not the node's: another node would not
// help, or somebody wants the whole job to end.
func Mistaken(kind health.Kind) bool {
	switch kind {
	case health.Usage, health.Launch, health.Terminated, health.Interrupted, health.Aborted:
		return true
	default:
		return false
	}
}

// TakeExcused hands over the failures that were excused, for a verdict before
// the gate: each of them is why there are too few nodes. Each is handed over
// once, however many failures come after it.
func (r *Roster) TakeExcused() []health.Observed {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open {
		return nil
	}
	excused := r.excused
	r.excused = nil
	return excused
}

// Dropped are the nodes with which something was wrong, in order.
func (r *Roster) Dropped() []signal.DroppedRank {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.droppedLocked()
}

func (r *Roster) droppedLocked() []signal.DroppedRank {
	dropped := make([]signal.DroppedRank, 0, len(r.gone))
	for _, rank := range slices.Sorted(maps.Keys(r.gone)) {
		dropped = append(dropped, r.gone[rank])
	}
	return dropped
}

// Unknown are those of the ranks that are not known to be gone.
func (r *Roster) Unknown(ranks []int) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(ranks, func(rank int) bool {
		_, gone := r.gone[rank]
		return gone || r.open
	})
}

// meet notes who has joined. It needs mu.
func (r *Roster) meet(l signal.Listing) {
	for _, rank := range l.Ranks(signal.Joined) {
		r.joined[rank] = true
	}
}

// Expected are the peers that should live, with their newest beats: those that
// have joined and are neither done nor failed. The head is not its own peer.
func (r *Roster) Expected(l signal.Listing) map[int]int64 {
	beats := l.Beats(signal.BeatState)
	alive := make(map[int]int64)
	r.mu.Lock()
	r.meet(l)
	for rank := range r.joined {
		alive[rank] = beats[rank]
	}
	r.mu.Unlock()
	delete(alive, 0)
	for _, state := range []string{signal.Done, signal.Failed} {
		for _, rank := range l.Ranks(state) {
			delete(alive, rank)
		}
	}
	return alive
}

// Absent are the nodes, in order, whose end nobody needs to wait for: they had not
// joined until the gate, or their daemons are lost. One that is dropped for a failure lives and ends
// with the job.
func (r *Roster) Absent(l signal.Listing) []int {
	if !r.spares {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meet(l)
	var absent []int
	for rank := range r.size {
		if r.open && !r.joined[rank] { // before, they may be about to
			absent = append(absent, rank)
		}
	}
	told := append(l.Ranks(signal.Failed), l.Ranks(signal.SandboxFailed)...)
	for rank := range r.gone {
		if !r.spoke[rank] && !slices.Contains(told, rank) {
			absent = append(absent, rank)
		}
	}
	slices.Sort(absent)
	return absent
}
