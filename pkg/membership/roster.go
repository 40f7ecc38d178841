package membership

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Team has the nodes that the driver uses.
type Team struct {
	Generation int      // 0, and one more after each change; -1 without spares
	Members    []Member // ordered by their place
}

// Member is a node's place in the team.
type Member struct {
	NodeIndex int // in the launch
	// SinceGeneration is the generation since which the member's place and the team's size have not
	// changed: services that were started before have other values.
	SinceGeneration int
}

// placeOf returns the place of a node in the team, or -1 if it has none.
func (t *Team) placeOf(node int) int {
	return slices.IndexFunc(t.Members, func(m Member) bool { return m.NodeIndex == node })
}

// Membership is the head's view of the membership. Without spares all nodes are members from the
// start, and the membership never changes.
type Membership struct {
	size       int
	bounds     NodeRange
	spares     bool // the job can run without some of its nodes
	placeInEnv bool // services have their place in their environment

	mu      sync.Mutex
	current Team // the newest; guarded by mu
	// closed and replaced at each change of the members; guarded by mu
	changed chan struct{}
	gone    map[int]record.DroppedNode          // guarded by mu
	canLose func(nodes []int, silent bool) bool // nil without roles; guarded by mu
	// nodes seen in any poll so far, as a listing may be old; guarded by mu
	joined          map[int]bool
	selfReported    map[int]bool             // nodes that have reported why they end; guarded by mu
	tolerated       []health.ObservedFailure // failures so far that did not end the run; guarded by mu
	frozen          bool                     // the members do not change any more; guarded by mu
	EarlierAttempts                          // guarded by mu
	readyProgress                            // guarded by mu
}

// EarlierAttempts is what earlier attempts have found out about nodes.
type EarlierAttempts struct {
	Unfit []record.DroppedNode // never members; their daemons end with the job
	// Lost has nodes whose daemons were lost. The first choice of the members does not wait for them, but
	// takes one that has come back by then, for which it waits a moment unless LostForGood is set: nothing
	// restarts them. One that is back without a peer link is taken only if there are too few others: most
	// likely it was lost because it could not be reached.
	Lost        []int
	LostForGood bool
	Suspect     []int // nodes that have failed repeatedly, and become members only if there are no others
}

// readyProgress is the progress of the nodes towards readiness.
type readyProgress struct {
	readyCount   int       // number of ready nodes at the last poll
	lastIncrease time.Time // when that number last increased
	reachedMax   time.Time // when the maximum for the driver was first reached
	awaitsLink   bool      // the first choice waits a moment for the link of a node
}

// NewMembership returns the membership of a launch of size nodes, of which bounds.Of(size) are
// needed. ranked states that services have their place in their environment.
func NewMembership(size int, bounds NodeRange, ranked bool) *Membership {
	r := &Membership{
		size: size, bounds: bounds.ForSize(size), placeInEnv: ranked, changed: make(chan struct{}),
		gone:   make(map[int]record.DroppedNode),
		joined: make(map[int]bool), selfReported: make(map[int]bool),
	}
	r.spares = r.bounds.Min < size
	r.current.Generation = -1
	if !r.spares {
		for node := range size {
			r.current.Members = append(r.current.Members, Member{NodeIndex: node})
		}
	}
	return r
}

// SetEarlier sets what earlier attempts have found out about nodes.
func (r *Membership) SetEarlier(earlier EarlierAttempts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.EarlierAttempts = earlier
	for _, dropped := range earlier.Unfit {
		r.gone[dropped.NodeIndex], r.selfReported[dropped.NodeIndex] = dropped, true
	}
}

// HasSpares reports whether the job can run without some of its nodes.
func (r *Membership) HasSpares() bool { return r.spares }

// Members returns the present members, or nil if they have not been chosen yet, and a channel that
// is closed when they change.
func (r *Membership) Members() ([]Member, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current.Members, r.changed
}

// MemberNodes returns the members' node indices in the launch, by place.
func (r *Membership) MemberNodes() []int {
	members, _ := r.Members()
	nodes := make([]int, 0, len(members))
	for _, member := range members {
		nodes = append(nodes, member.NodeIndex)
	}
	return nodes
}

// Count returns the number of the driver's nodes: all if the members have not been chosen yet.
func (r *Membership) Count() int {
	if members, _ := r.Members(); members != nil {
		return len(members)
	}
	return r.size
}

// FilterMembers returns the given nodes that are members: all of them if the members have not been
// chosen yet.
func (r *Membership) FilterMembers(nodes []int) []int {
	if !r.spares {
		return nodes
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(nodes, func(node int) bool {
		return r.current.Members != nil && r.current.placeOf(node) < 0
	})
}

// MissingNodes returns the sorted indices of the members that are not in state in the listing. If
// the members have not been chosen yet, it considers all nodes.
func (r *Membership) MissingNodes(l signal.Listing, state record.State) []int {
	members, _ := r.Members()
	if !r.spares || members == nil {
		return l.NodesNotIn(state, r.size)
	}
	return signal.WithoutNodes(slices.Sorted(slices.Values(r.MemberNodes())), l.NodesIn(state))
}

// MonitoredPeers returns the peers of [Membership.ExpectedPeers] whose heartbeats the head must check
// at present: the spares if standby is set, otherwise the members. Before the gate opens, members and
// spares are treated in the same way, as members.
func (r *Membership) MonitoredPeers(l signal.Listing, standby bool) map[int]int64 {
	if !r.spares && standby {
		return nil
	}
	living := r.ExpectedPeers(l)
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(living, func(member int, _ int64) bool {
		_, gone := r.gone[member]
		isSpare := r.frozen && r.current.placeOf(record.NodeOfMember(member, r.size)) < 0
		return gone || r.spares && standby != isSpare
	})
	return living
}

// NextTeam returns the team that follows from the nodes after this poll, or nil if the members do not
// change. unlinked has the ready nodes without a peer link. When no further node has become ready for
// minimumAfter, the minimum is accepted.
func (r *Membership) NextTeam(
	ready []int, unlinked map[int]bool, now time.Time, minimumAfter time.Duration,
) *Team {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.spares || r.frozen {
		return nil
	}
	if len(ready) > r.readyCount {
		r.readyCount, r.lastIncrease = len(ready), now
	}
	if len(ready) >= r.bounds.Max && r.reachedMax.IsZero() {
		r.reachedMax = now
	}
	m := teamSelection{
		size: r.size, bounds: r.bounds, ready: ready, gone: r.gone, EarlierAttempts: r.EarlierAttempts,
		unlinked:      unlinked,
		idle:          !r.lastIncrease.IsZero() && now.Sub(r.lastIncrease) >= firstChoiceDelay,
		acceptMinimum: !r.lastIncrease.IsZero() && now.Sub(r.lastIncrease) >= minimumAfter,
		settled:       !r.reachedMax.IsZero() && now.Sub(r.reachedMax) >= firstChoiceDelay,
	}
	for _, member := range r.current.Members {
		m.members = append(m.members, member.NodeIndex)
	}
	team, possible := m.chooseMembers()
	r.awaitsLink = possible && m.awaitsLink()
	if !possible || team == nil || slices.Equal(team, m.members) {
		return nil
	}
	generation := r.current.Generation + 1
	return &Team{
		Generation: generation, Members: nextMembers(r.current.Members, team, generation, r.placeInEnv),
	}
}

// NextPlan returns the number of the next plan on the present members, after that of the newest one, which
// is -1 if there is none. The first plan on members has the number of their generation.
func (r *Membership) NextPlan(newest int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(newest+1, r.current.Generation)
}

// AwaitsLink reports whether the first choice waits a moment for the peer link of a node.
func (r *Membership) AwaitsLink() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.awaitsLink
}

// firstChoiceDelay is how long the head waits for nodes with lower indices before the first choice,
// for their peer links, and for the restarted daemons of lost nodes.
const firstChoiceDelay = 250 * time.Millisecond

// ApplyTeam makes a team the present one.
func (r *Membership) ApplyTeam(rec *Team) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = *rec
	close(r.changed)
	r.changed = make(chan struct{})
}

// FreezeMembers fixes the membership, unless it has changed since Members returned the channel
// changed, or a member is gone. It reports whether the membership is fixed, now or since earlier.
// If this call fixes it, canLose, unless it is nil, reports from then on whether the run goes on
// without nodes whose daemons have been lost, and records their loss if so. silent states that the
// daemons have fallen silent, and may still run. It is called with a lock held.
func (r *Membership) FreezeMembers(changed <-chan struct{}, canLose func(nodes []int, silent bool) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen {
		return true
	}
	for _, member := range r.current.Members {
		if _, gone := r.gone[member.NodeIndex]; gone {
			return false
		}
	}
	if r.frozen = changed == r.changed; r.frozen && canLose != nil {
		r.canLose = canLose
	}
	return r.frozen
}

// DecideLosses makes canLose decide on losses from now on, as [Membership.FreezeMembers] does, but
// does not fix the membership.
func (r *Membership) DecideLosses(canLose func(nodes []int, silent bool) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.canLose = canLose
}

// TolerateFailure records a failure. goesOn reports that the job continues, because the driver
// needs none of the nodes concerned; the head is always needed. news reports that one of the nodes
// was not known to be gone.
func (r *Membership) TolerateFailure(seen health.ObservedFailure, hostOf func(int) string) (goesOn, news bool) {
	blamed := seen.FaultyNodes()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(seen.LostNodes) == 0 {
		r.selfReported[seen.NodeIndex] = true
	}
	if r.canLose != nil && !slices.Contains(blamed, 0) && r.areGone(blamed) {
		return true, false // they fail after their loss, which the run has survived
	}
	if r.canLose != nil && len(seen.LostNodes) > 0 && !slices.Contains(blamed, 0) {
		goesOn = r.canLose(blamed, seen.Kind != health.DaemonDied)
		return goesOn, goesOn && r.recordGone(seen, blamed, hostOf)
	}
	ofStep := slices.ContainsFunc(blamed, func(member int) bool { return member >= r.size })
	if !r.spares || ofStep || slices.Contains(blamed, 0) || !r.frozen && IsNotNodeFault(seen.Kind) {
		return false, false
	}
	isMember := func(node int) bool { return r.current.placeOf(node) >= 0 }
	if r.frozen && slices.ContainsFunc(blamed, isMember) {
		return false, false
	}
	news = r.recordGone(seen, blamed, hostOf)
	if !r.frozen && r.size-len(r.gone) < r.bounds.Min {
		return false, false
	}
	if news {
		r.tolerated = append(r.tolerated, seen)
	}
	return true, news
}

// LoseAtEnd passes on the loss of nodes when the result of the run is final, so that nothing is awaited
// from their instances of roles.
func (r *Membership) LoseAtEnd(nodes []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.canLose != nil && len(nodes) > 0 {
		r.canLose(nodes, false)
	}
}

// recordGone records that nodes are gone, and reports whether that was not known of one of them. mu
// must be held.
func (r *Membership) recordGone(seen health.ObservedFailure, blamed []int, hostOf func(int) string) (news bool) {
	for _, node := range blamed {
		if _, gone := r.gone[node]; !gone {
			news = true
			r.gone[node] = record.DroppedNode{NodeIndex: node, Host: hostOf(node), Reason: seen.Message}
		}
	}
	return news
}

// areGone reports whether all of the nodes are known to be gone. mu must be held.
func (r *Membership) areGone(nodes []int) bool {
	return !slices.ContainsFunc(nodes, func(node int) bool {
		_, gone := r.gone[node]
		return !gone
	})
}

// IsNotNodeFault reports whether a failure is not caused by the node: it would also happen on
// another node, or the whole job was asked to end.
func IsNotNodeFault(kind health.Kind) bool {
	switch kind {
	case health.Usage, health.Launch, health.Terminated, health.Interrupted, health.Aborted:
		return true
	default:
		return false
	}
}

// TakeExcused returns the failures that did not end the run, for a verdict before the gate opens:
// each of them is a reason why there are too few nodes. It returns each failure only once.
func (r *Membership) TakeExcused() []health.ObservedFailure {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen {
		return nil
	}
	excused := r.tolerated
	r.tolerated = nil
	return excused
}

// DroppedNodes returns the nodes with faults, sorted.
func (r *Membership) DroppedNodes() []record.DroppedNode {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.droppedLocked()
}

func (r *Membership) droppedLocked() []record.DroppedNode {
	dropped := make([]record.DroppedNode, 0, len(r.gone))
	for _, node := range slices.Sorted(maps.Keys(r.gone)) {
		dropped = append(dropped, r.gone[node])
	}
	return dropped
}

// NotKnownGone returns the given nodes that are not known to be gone, or none once the membership
// is fixed.
func (r *Membership) NotKnownGone(nodes []int) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(nodes, func(node int) bool {
		_, gone := r.gone[node]
		return gone || r.frozen
	})
}

// recordJoined records which nodes have joined. mu must be held.
func (r *Membership) recordJoined(l signal.Listing) {
	for _, listing := range []signal.Listing{l, l.OfSteps()} {
		for _, member := range listing.NodesIn(record.StateJoined) {
			r.joined[member] = true
		}
	}
}

// ExpectedPeers returns the peers that should be alive, with their newest heartbeats: the nodes
// and members of further steps that have joined and are neither done nor failed. The head is not its
// own peer.
func (r *Membership) ExpectedPeers(l signal.Listing) map[int]int64 {
	beats := l.Heartbeats()
	steps := l.OfSteps()
	maps.Copy(beats, steps.Heartbeats())
	alive := make(map[int]int64)
	r.mu.Lock()
	r.recordJoined(l)
	for member := range r.joined {
		alive[member] = beats[member]
	}
	r.mu.Unlock()
	delete(alive, 0)
	for _, state := range []record.State{record.StateDone, record.StateFailed} {
		for _, member := range append(l.NodesIn(state), steps.NodesIn(state)...) {
			delete(alive, member)
		}
	}
	return alive
}

// UnjoinedNodes returns the sorted indices of the nodes that have not joined, according to a listing
// and all before it: a later one may be older.
func (r *Membership) UnjoinedNodes(l signal.Listing) (unjoined []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recordJoined(l)
	for node := range r.size {
		if !r.joined[node] {
			unjoined = append(unjoined, node)
		}
	}
	return unjoined
}

// AbsentNodes returns the sorted indices of the nodes that the head need not await at the end of
// the run: they had not joined when the gate opened, or their daemons are lost. The daemon of a
// node that was dropped because of a failure runs until the job ends.
func (r *Membership) AbsentNodes(l signal.Listing) []int {
	if !r.spares && len(r.DroppedNodes()) == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recordJoined(l)
	var absent []int
	for node := range r.size {
		if r.frozen && !r.joined[node] { // before, they may be about to join
			absent = append(absent, node)
		}
	}
	reported := append(l.NodesIn(record.StateFailed), l.NodesIn(record.StateSandboxFailed)...)
	for node := range r.gone {
		if !r.selfReported[node] && !slices.Contains(reported, node) {
			absent = append(absent, node)
		}
	}
	slices.Sort(absent)
	return absent
}
