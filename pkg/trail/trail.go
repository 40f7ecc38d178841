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

// Trail is what one daemon leaves behind. Events and log wait in memory until
// there is a run directory. Its methods may be called from several goroutines.
type Trail struct {
	// Log takes the lines of the daemon's log.
	Log *journal.Journal
	// Changed is told of each phase that is entered, and of none where one is
	// left; nil: nobody is told. It is set before the first phase.
	Changed func(entered string)

	began  time.Time
	events *journal.Journal

	mu     sync.Mutex
	rank   *int                // nil before Open; guarded by mu
	host   string              // guarded by mu
	stays  stays               // guarded by mu
	passed []signal.PhaseTime  // guarded by mu
	exits  map[string]struct{} // children whose end was told of, guarded by mu
	fences int                 // told of, guarded by mu
	spawns int                 // guarded by mu
}

// New returns a trail that begins now. Close must be called once it was opened.
func New() *Trail {
	return &Trail{Log: journal.New(), began: time.Now(), events: journal.New(), exits: make(map[string]struct{})}
}

// Open gives the trail its files, which are named after the kind of daemon: a
// sandbox's own daemon has the rank of the node's other one.
func (t *Trail) Open(dir *signal.Dir, id roles.Identity, kind string) {
	t.mu.Lock() // the node's checks run already, and may write
	t.rank, t.host = &id.Rank, id.Host
	t.mu.Unlock()
	t.events.Open(dir.LogFile(signal.Events, signal.EventsName(kind, id.Rank, id.Size)))
	t.Log.Open(dir.LogFile(signal.Logs, signal.LogName(kind, id.Rank, id.Size)))
}

// Age is how long ago the trail began.
func (t *Trail) Age() time.Duration { return time.Since(t.began) }

// Event writes one event. What it needs in addition to the fields, it has.
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

// Enter says which phase the node is in from now on.
func (t *Trail) Enter(phase string) {
	t.mu.Lock()
	t.stays.enter(phase, time.Now())
	t.mu.Unlock()
	t.Event(Enter, Fields{})
	t.tell(phase)
}

// Leave says how long a phase took, and whether it went well.
func (t *Trail) Leave(phase string, took time.Duration, well bool) {
	t.mu.Lock()
	t.passed = append(t.passed, signal.PhaseTime{Phase: phase, Took: took})
	t.stays.leave(phase, took)
	t.mu.Unlock()
	t.tell("")
	t.Event(Leave, Fields{Left: phase, TookNS: took.Nanoseconds(), OK: &well})
}

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

// Passed returns the phases that were left so far.
func (t *Trail) Passed() []signal.PhaseTime {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.passed)
}

// Lasted tells how long each phase took, or takes so far, in the order in which
// they were entered first. A phase may come again, where the team changes.
func (t *Trail) Lasted(now time.Time) []signal.PhaseTime {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stays.lasted(now)
}

// Sync has what is there written while the node does other things.
func (t *Trail) Sync() {
	_ = t.events.Sync()
	_ = t.Log.Sync()
}

// Close writes what is left, and waits for that until ctx ends.
func (t *Trail) Close(ctx context.Context) {
	var closing sync.WaitGroup
	closing.Go(func() { _ = t.events.Close(ctx) })
	closing.Go(func() { _ = t.Log.Close(ctx) })
	closing.Wait()
}

// Published notes that a record is there for all to see, and since when it may
// have been.
func (t *Trail) Published(name string, began time.Time) {
	t.Event(Told, Fields{Record: name, TookNS: time.Since(began).Nanoseconds()})
}

// Exited notes once how a child has ended.
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
	// mostFences and mostSlowFences bound how many fences leave an event: a program may meet in each of its steps.
	// After the first only those that took slowFence are told of.
	mostFences     = 20
	mostSlowFences = 1000
	slowFence      = time.Second
)

// Met notes that the ranks of this node have left a fence, which the first of them had entered so long ago, because all had
// come, or by an error.
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

// Spawned notes that a rank has spawned others, which are numbered from first on and run on these hosts; it returns that as a sentence.
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

// Sightings returns what takes in a look at Control, and notes what of the
// head's it shows for the first time.
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

// Musters returns what takes in the head's look at Nodes, and notes which ranks
// it shows in a state for the first time.
func (t *Trail) Musters() func(l signal.Listing) {
	known := make(map[string][]int)
	return func(l signal.Listing) {
		for _, state := range l.States() {
			ranks := l.Ranks(state)
			if len(ranks) == len(known[state]) {
				continue
			}
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
	// mostProbes bounds how often a service's probe leaves an event: what it sees
	// may be something else each time.
	mostProbes = 10
	// longestSeen bounds in bytes what a probe saw.
	longestSeen = 300
)

// Probed returns a look that notes when it sees something else than before.
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
