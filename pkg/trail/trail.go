package trail

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/journal"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Trail is the event log of one daemon, together with the daemon's own log. Events and lines are
// kept in memory until [Trail.Open]. Its methods may be called from several goroutines.
type Trail struct {
	// Log receives the lines of the daemon's own log.
	Log *journal.Journal
	// Changed is called with each phase that is entered, and with "" if a phase is left. It may be
	// nil. It must be set before the first phase.
	Changed func(entered string)

	began  time.Time
	events *journal.Journal

	mu     sync.Mutex
	rank   *int                // nil before Open; guarded by mu
	host   string              // guarded by mu
	stays  stays               // guarded by mu
	passed []signal.PhaseTime  // guarded by mu
	exits  map[string]struct{} // ends already recorded, by child and PID; guarded by mu
	fences int                 // number of recorded fences; guarded by mu
	spawns int                 // number of spawn calls; guarded by mu
}

// New returns a [Trail] that begins now. After Open, it must be closed.
func New() *Trail {
	return &Trail{Log: journal.New(), began: time.Now(), events: journal.New(), exits: make(map[string]struct{})}
}

// Open sets the files to write. Their names contain the kind of daemon, because a sandbox's own
// daemon has the same node index as the main daemon of its node.
func (t *Trail) Open(dir *signal.Dir, id roles.Identity, kind string) {
	t.mu.Lock() // the node's checks may be running and writing events
	t.rank, t.host = &id.Rank, id.Host
	t.mu.Unlock()
	t.events.Open(dir.LogFile(signal.Events, signal.EventsName(kind, id.Rank, id.Size)))
	t.Log.Open(dir.LogFile(signal.Logs, signal.LogName(kind, id.Rank, id.Size)))
}

// Age returns the time since the [Trail] began.
func (t *Trail) Age() time.Duration { return time.Since(t.began) }

// Event writes one event with the given fields and adds time, node and phase.
func (t *Trail) Event(word Word, fields Fields) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	line, err := Event{
		At: now.Format(time.RFC3339Nano), Word: word, Version: Version, Rank: t.rank, Host: t.host,
		Fields: fields, SinceNS: now.Sub(t.began).Nanoseconds(), Phase: t.stays.newest(),
	}.encode()
	if err == nil {
		_, _ = t.events.Write(line)
	}
}

// Enter records that the node enters a phase.
func (t *Trail) Enter(phase string) {
	t.mu.Lock()
	t.stays.enter(phase, time.Now())
	t.mu.Unlock()
	t.Event(Enter, Fields{})
	t.tell(phase)
}

// Leave records that a phase has ended, how long it took, and whether it succeeded.
func (t *Trail) Leave(phase string, took time.Duration, well bool) {
	t.mu.Lock()
	t.passed = append(t.passed, signal.PhaseTime{Phase: phase, Took: took})
	t.stays.leave(phase, took)
	t.mu.Unlock()
	t.tell("")
	t.Event(Leave, Fields{Left: phase, TookNS: took.Nanoseconds(), OK: &well})
}

// tell calls [Trail.Changed].
func (t *Trail) tell(entered string) {
	if t.Changed != nil {
		t.Changed(entered)
	}
}

// Phase returns the phase entered last.
func (t *Trail) Phase() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stays.newest()
}

// Passed returns the phases that have been left so far.
func (t *Trail) Passed() []signal.PhaseTime {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.passed)
}

// Lasted returns how long each phase took, or has taken so far, in the order of first entry. A
// phase can be entered several times, because the membership can change.
func (t *Trail) Lasted(now time.Time) []signal.PhaseTime {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stays.lasted(now)
}

// Sync starts to write pending lines. It does not wait.
func (t *Trail) Sync() {
	_ = t.events.Sync()
	_ = t.Log.Sync()
}

// Close writes the remaining lines, and waits until ctx ends at the latest.
func (t *Trail) Close(ctx context.Context) {
	var closing sync.WaitGroup
	closing.Go(func() { _ = t.events.Close(ctx) })
	closing.Go(func() { _ = t.Log.Close(ctx) })
	closing.Wait()
}

// Published records that a record has been published. The record may have become visible at any
// time since began.
func (t *Trail) Published(name string, began time.Time) {
	t.Event(Told, Fields{Record: name, TookNS: time.Since(began).Nanoseconds()})
}

// Exited records how a child ended. Repeated calls for the same child are ignored.
func (t *Trail) Exited(child string, pid int, how string) {
	key := fmt.Sprint(child, " ", pid)
	t.mu.Lock()
	_, told := t.exits[key]
	t.exits[key] = struct{}{}
	t.mu.Unlock()
	if !told {
		t.Event(Exit, Fields{Child: child, PID: pid, Exit: how})
	}
}

const (
	// mostFences and mostSlowFences bound the number of fences that are recorded, because a program
	// may have a fence in each of its steps. After the first mostFences, only failed fences and those
	// that took slowFence are recorded.
	mostFences     = 20
	mostSlowFences = 1000
	slowFence      = time.Second
)

// Met records that the ranks of this node have left a fence, at the time took after the first of
// them entered it. err is nil if the fence was complete.
func (t *Trail) Met(fence string, round int, took time.Duration, err error) {
	t.mu.Lock()
	told := t.fences < mostFences || (took >= slowFence || err != nil) && t.fences < mostSlowFences
	if told {
		t.fences++
	}
	t.mu.Unlock()
	fields := Fields{Fence: fence, Round: round, TookNS: took.Nanoseconds()}
	if err != nil {
		fields.Error = err.Error()
	}
	if told {
		t.Event(Fence, fields)
	}
}

// Spawned records that the rank by has spawned count ranks, numbered from first, on these hosts. It
// returns a sentence that says so.
func (t *Trail) Spawned(by, first, count int, hosts []string) string {
	ranks := make([]int, count)
	for i := range ranks {
		ranks[i] = first + i
	}
	what := fmt.Sprintf("rank %d has spawned %s on %s", by, prose.Ranks(ranks), prose.List(hosts, 16, ", "))
	t.mu.Lock()
	told := t.spawns < mostSlowFences
	t.spawns++
	t.mu.Unlock()
	if told {
		t.Event(Spawned, Fields{Of: &by, Ranks: prose.Ranges(ranks), What: what})
	}
	return what
}

// Sightings returns a function that takes listings of the control directory, and records which of
// the head's records appear for the first time.
func (t *Trail) Sightings() func(l signal.Listing, size int) {
	seen := make(map[string]bool)
	return func(l signal.Listing, size int) {
		names := []string{signal.NameHead, signal.NameGo, signal.NameDrain}
		if newest := l.Team(); newest >= 0 {
			names = append(names, signal.TeamName(newest))
		}
		for _, rank := range l.Aborts() {
			names = append(names, signal.AbortName(rank, size))
		}
		for _, name := range names {
			if !seen[name] && l.Has(name) {
				seen[name] = true
				t.Event(Saw, Fields{Record: name})
			}
		}
	}
}

// Musters returns a function that takes the head's listings of the nodes directory, and records
// which nodes have newly reached a state.
func (t *Trail) Musters() func(l signal.Listing) {
	known := make(map[string][]int)
	return func(l signal.Listing) {
		for _, state := range l.States() {
			ranks := l.Ranks(state)
			if len(ranks) == len(known[state]) {
				continue
			}
			// Record only the nodes that the previous listing did not show.
			fresh := slices.DeleteFunc(slices.Clone(ranks), func(rank int) bool {
				_, before := slices.BinarySearch(known[state], rank)
				return before
			})
			known[state] = ranks
			t.Event(Reached, Fields{State: state, Ranks: prose.Ranges(fresh)})
		}
	}
}

const (
	// mostProbes bounds the number of events per service's probe, because each result may differ from
	// the one before.
	mostProbes = 10
	// longestSeen bounds the recorded result of a probe, in bytes.
	longestSeen = 300
)

// Probed wraps the probe look of a child. The returned function records results that differ from
// the previous one.
func (t *Trail) Probed(child string, look func(context.Context) error) func(context.Context) error {
	told, events := "", 0
	return func(ctx context.Context) error {
		err := look(ctx)
		if ctx.Err() != nil {
			return err
		}
		if err == nil {
			t.Event(Probe, Fields{Child: child, OK: new(true)})
			return nil
		}
		if seen := err.Error(); seen != told && events < mostProbes {
			told, events = seen, events+1
			t.Event(Probe, Fields{Child: child, OK: new(false), Seen: seen[:min(len(seen), longestSeen)]})
		}
		return err
	}
}
