package team

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Roster is the head's view of the membership. Without spares all nodes are members from the start,
// and the membership never changes.
type Roster struct {
	size   int
	bounds Bounds
	spares bool // the job can run without some of its nodes
	ranked bool // services have their place in their environment

	mu      sync.Mutex
	record  signal.TeamRecord          // the newest; guarded by mu
	changed chan struct{}              // closed and replaced at each change of the members; guarded by mu
	gone    map[int]signal.DroppedRank // guarded by mu
	joined  map[int]bool               // nodes seen in any poll so far, as a listing may be old; guarded by mu
	spoke   map[int]bool               // nodes that have reported why they end; guarded by mu
	excused []health.Observed          // failures so far that did not end the run; guarded by mu
	open    bool                       // the members do not change any more; guarded by mu
	coming                             // guarded by mu
	pending                            // guarded by mu
}

// coming is the progress of the nodes towards readiness.
type coming struct {
	ready int       // number of ready nodes at the last poll
	since time.Time // when that number last increased
	full  time.Time // when the maximum for the driver was first reached
}

// pending has failures that Excuse has held back.
type pending struct {
	held  []health.Observed // failed checks that the records of other nodes will decide
	ended bool              // nothing is held back any more
}

// NewRoster returns the membership of a launch of size nodes, of which bounds.Of(size) are needed.
// ranked states that services have their place in their environment.
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

// Exclude excludes nodes from the membership from the start. Their daemons end with the job.
func (r *Roster) Exclude(unfit []signal.DroppedRank) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, dropped := range unfit {
		r.gone[dropped.Rank], r.spoke[dropped.Rank] = dropped, true
	}
}

// Spares reports whether the job can run without some of its nodes.
func (r *Roster) Spares() bool { return r.spares }

// Team returns the present members, or nil if they have not been chosen yet, and a channel that is
// closed when they change.
func (r *Roster) Team() ([]signal.Member, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Members, r.changed
}

// Ranks returns the members' node indices in the launch, by place.
func (r *Roster) Ranks() []int {
	members, _ := r.Team()
	ranks := make([]int, 0, len(members))
	for _, member := range members {
		ranks = append(ranks, member.Rank)
	}
	return ranks
}

// Count returns the number of the driver's nodes: all if the members have not been chosen yet.
func (r *Roster) Count() int {
	if members, _ := r.Team(); members != nil {
		return len(members)
	}
	return r.size
}

// Among returns the given nodes that are members: all of them if the members have not been chosen
// yet.
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

// Missing returns the sorted indices of the members that are not in state in the listing. If the
// members have not been chosen yet, it considers all nodes.
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

// Living returns the nodes of expected whose heartbeats the head must check at present: the spares
// if standby is set, otherwise the members. Before the gate opens, members and spares are treated
// in the same way, as members.
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

// Next returns the next membership record after this poll, or nil if the members do not change.
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

// settleTeam is how long the head waits for nodes with lower indices before the first choice.
const settleTeam = 250 * time.Millisecond

// Take makes a published record the present one.
func (r *Roster) Take(record *signal.TeamRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record = *record
	close(r.changed)
	r.changed = make(chan struct{})
}

// Freeze fixes the membership, unless it has changed since Team returned the channel changed, or a
// member is gone. It reports whether the membership is fixed.
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

// Excuse records a failure. goesOn reports that the job continues, because the driver needs none of
// the nodes concerned; the head is always needed. news reports that one of the nodes was not known
// to be gone.
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

// ReleaseHeld decides the failed checks that Excuse has held back, if that is possible now, and
// calls observe once for each of them. It uses health.Weigh with the nodes that have passed their
// checks.
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

// TakeHeld returns the failures that are held back, for the verdict. No failures are held back
// afterwards.
func (r *Roster) TakeHeld() []health.Observed {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.held
	r.held, r.ended = nil, true
	return held
}

// Mistaken reports whether a failure is not caused by the node: it would also happen on another
// node, or the whole job was asked to end.
func Mistaken(kind health.Kind) bool {
	switch kind {
	case health.Usage, health.Launch, health.Terminated, health.Interrupted, health.Aborted:
		return true
	default:
		return false
	}
}

// TakeExcused returns the failures that did not end the run, for a verdict before the gate opens:
// each of them is a reason why there are too few nodes. It returns each failure only once.
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

// Dropped returns the nodes with faults, sorted.
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

// Unknown returns the given nodes that are not known to be gone, or none once the membership is
// fixed.
func (r *Roster) Unknown(ranks []int) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(ranks, func(rank int) bool {
		_, gone := r.gone[rank]
		return gone || r.open
	})
}

// meet records which nodes have joined. mu must be held.
func (r *Roster) meet(l signal.Listing) {
	for _, rank := range l.Ranks(signal.Joined) {
		r.joined[rank] = true
	}
}

// Expected returns the peers that should be alive, with their newest heartbeats: the nodes that
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

// Absent returns the sorted indices of the nodes that the head need not await at the end of the
// run: they had not joined when the gate opened, or their daemons are lost. The daemon of a node
// that was dropped because of a failure runs until the job ends.
func (r *Roster) Absent(l signal.Listing) []int {
	if !r.spares {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meet(l)
	var absent []int
	for rank := range r.size {
		if r.open && !r.joined[rank] { // before, they may be about to join
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
