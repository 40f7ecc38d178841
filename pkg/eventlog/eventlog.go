// Package eventlog writes the event log of a daemon, one JSON object per line, and the daemon's own
// log. It defines the schema of events for writers and readers.
package eventlog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// EventLog is the event log of one daemon, together with the daemon's own log. Events and lines are
// kept in memory until [EventLog.Open]. Its methods may be called from several goroutines.
type EventLog struct {
	// Log receives the lines of the daemon's own log.
	Log *files.Journal
	// OnPhaseChange is called when a phase is entered or left. It may be nil. It must be set before
	// the first phase.
	OnPhaseChange func()

	startTime time.Time
	events    *files.Journal

	mu           sync.Mutex
	nodeIndex    *int                   // nil before Open; guarded by mu
	host         string                 // guarded by mu
	phases       phaseHistory           // guarded by mu
	completed    []record.PhaseDuration // guarded by mu
	logged       map[string]struct{}    // what is recorded only once; guarded by mu
	loggedFences int                    // number of recorded fences; guarded by mu
	spawnCalls   int                    // number of spawn calls; guarded by mu
	steps        loggedSteps            // guarded by mu
}

// New returns a [EventLog] that begins now. After Open, it must be closed.
func New() *EventLog {
	return &EventLog{Log: files.NewJournal(), startTime: time.Now(), events: files.NewJournal(),
		logged: make(map[string]struct{})}
}

// Open sets the files to write. Their names contain the kind of daemon, because several steps
// may have a daemon on one node.
func (t *EventLog) Open(dir *signal.Dir, id launcher.Identity, kind string) {
	t.mu.Lock() // the node's checks may be running and writing events
	node := record.NodeOfMember(id.NodeIndex, id.Size)
	t.nodeIndex, t.host = &node, id.Host
	t.mu.Unlock()
	t.events.Open(dir.NewLogFile(signal.EventsDir, signal.EventsName(kind, node, id.Size)))
	t.Log.Open(dir.NewLogFile(signal.LogsDir, signal.LogName(kind, node, id.Size)))
}

// SinceStart returns the time since the [EventLog] began.
func (t *EventLog) SinceStart() time.Duration { return time.Since(t.startTime) }

// WriteEvent writes one event with the given fields and adds time, node and phase.
func (t *EventLog) WriteEvent(word EventType, fields Fields) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	line, err := Event{
		At: now.Format(time.RFC3339Nano), Type: word, Version: FormatVersion, NodeIndex: t.nodeIndex, Host: t.host,
		Fields: fields, SinceStartNS: now.Sub(t.startTime).Nanoseconds(), Phase: t.phases.newestPhase(),
	}.encodeLine()
	if err == nil {
		_, _ = t.events.Write(line)
	}
}

// EnterPhase records that the node enters a phase.
func (t *EventLog) EnterPhase(phase record.Phase) {
	t.mu.Lock()
	t.phases.enterPhase(phase, time.Now())
	t.mu.Unlock()
	t.WriteEvent(PhaseEntered, Fields{})
	t.notifyPhaseChange()
}

// LeavePhase records that a phase has ended, how long it took, and whether it succeeded.
func (t *EventLog) LeavePhase(phase record.Phase, took time.Duration, well bool) {
	t.mu.Lock()
	t.completed = append(t.completed, record.PhaseDuration{Phase: phase, Took: took})
	t.phases.leavePhase(phase, took)
	t.mu.Unlock()
	t.notifyPhaseChange()
	t.WriteEvent(PhaseLeft, Fields{ObjectFields: ObjectFields{EndedPhase: phase}, TookNS: took.Nanoseconds(),
		OK: &well})
}

func (t *EventLog) notifyPhaseChange() {
	if t.OnPhaseChange != nil {
		t.OnPhaseChange()
	}
}

// CurrentPhase returns the phase entered last.
func (t *EventLog) CurrentPhase() record.Phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.phases.newestPhase()
}

// CompletedPhases returns the phases that have been left so far.
func (t *EventLog) CompletedPhases() []record.PhaseDuration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.completed)
}

// PhaseDurations returns how long each phase took, or has taken so far, in the order of first
// entry. A phase can be entered several times, because the membership can change.
func (t *EventLog) PhaseDurations(now time.Time) []record.PhaseDuration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.phases.phaseDurations(now)
}

// Sync starts to write pending lines. It does not wait.
func (t *EventLog) Sync() {
	_ = t.events.Sync()
	_ = t.Log.Sync()
}

// Close writes the remaining lines, and waits until ctx ends at the latest.
func (t *EventLog) Close(ctx context.Context) {
	var closing sync.WaitGroup
	closing.Go(func() { _ = t.events.Close(ctx) })
	closing.Go(func() { _ = t.Log.Close(ctx) })
	closing.Wait()
}

// LogPublication records that a record has been published. The record may have become visible at
// any time since began.
func (t *EventLog) LogPublication(name string, began time.Time) {
	t.WriteEvent(RecordPublished, Fields{ObjectFields: ObjectFields{Record: name},
		TookNS: time.Since(began).Nanoseconds()})
}

func (t *EventLog) isFirst(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.logged[key]
	t.logged[key] = struct{}{}
	return !known
}

// LogExit records how a child ended. Repeated calls for the same child are ignored.
func (t *EventLog) LogExit(child string, pid int, how string) {
	if t.isFirst(fmt.Sprint("exit ", child, " ", pid)) {
		t.WriteEvent(ChildExited, Fields{ObjectFields: ObjectFields{Child: child, PID: pid}, Exit: how})
	}
}

const (
	// maxFences and maxSlowFences bound the number of fences that are recorded, because a program
	// may have a fence in each of its steps. After the first maxFences, only failed fences and those
	// that took slowFenceTime are recorded.
	maxFences     = 20
	maxSlowFences = 1000
	slowFenceTime = time.Second
	// maxSpawns bounds the number of recorded calls that have spawned ranks.
	maxSpawns = 1000
)

// LogFence records that the ranks of this node have left a fence, at the time took after the first
// of them entered it. err is nil if the fence was complete.
func (t *EventLog) LogFence(fence string, round int, took time.Duration, err error) {
	t.mu.Lock()
	logged := t.loggedFences < maxFences || (took >= slowFenceTime || err != nil) && t.loggedFences < maxSlowFences
	if logged {
		t.loggedFences++
	}
	t.mu.Unlock()
	fields := Fields{ObjectFields: ObjectFields{Fence: fence, Round: round}, TookNS: took.Nanoseconds()}
	if err != nil {
		fields.Error = err.Error()
	}
	if logged {
		t.WriteEvent(FenceLeft, fields)
	}
}

// loggedSteps are the steps that have been recorded.
type loggedSteps struct {
	count  int
	newest float64
	at     time.Duration // since the daemon's start
}

const (
	maxSteps        = 5000
	minStepInterval = time.Second
)

// isDue reports whether a step is to be recorded: if it is lower than the one before, and otherwise
// after a pause that is longer the longer the daemon runs.
func (s loggedSteps) isDue(step float64, now time.Duration) bool {
	if s.count == 0 || s.count >= maxSteps {
		return s.count == 0
	}
	return step < s.newest || step > s.newest && now-s.at >= max(minStepInterval, now/100)
}

// LogStep records the step that the program has reached, unless it has recorded one shortly before.
func (t *EventLog) LogStep(step float64) {
	now := t.SinceStart()
	t.mu.Lock()
	isDue := t.steps.isDue(step, now)
	if isDue {
		t.steps = loggedSteps{t.steps.count + 1, step, now}
	}
	t.mu.Unlock()
	if isDue {
		t.WriteEvent(StepReached, Fields{Step: &step})
	}
}

// LogSpawn records that the rank by has spawned count ranks, numbered from first, on these hosts.
// It returns a sentence that says so.
func (t *EventLog) LogSpawn(by, first, count int, hosts []string) string {
	ranks := make([]int, count)
	for i := range ranks {
		ranks[i] = first + i
	}
	what := fmt.Sprintf("rank %d has spawned %s on %s", by, textutil.FormatIndices("rank", ranks),
		textutil.JoinLimited(hosts, 16, ", "))
	t.mu.Lock()
	logged := t.spawnCalls < maxSpawns
	t.spawnCalls++
	t.mu.Unlock()
	if logged {
		t.WriteEvent(RanksSpawned, Fields{FailureFields: FailureFields{Subject: &by, What: what},
			ObjectFields: ObjectFields{Ranks: textutil.FormatRanges(ranks)}})
	}
	return what
}

// LogSeen records that this node knows of a record of the head, the first time that it is called for
// it.
func (t *EventLog) LogSeen(name string) {
	if t.isFirst("record " + name) {
		t.WriteEvent(RecordSeen, Fields{ObjectFields: ObjectFields{Record: name}})
	}
}

// LogControl records which of the head's records appear for the first time in a listing of the
// control directory. size is the number of nodes.
func (t *EventLog) LogControl(l signal.Listing, size int) {
	names := []string{signal.NameHead, signal.NameGateOpen, signal.NameOrderlyEnd}
	for _, node := range l.NodesWithAbort() {
		names = append(names, signal.AbortName(node, size))
	}
	for _, name := range names {
		if l.HasName(name) {
			t.LogSeen(name)
		}
	}
}

// NodesObserver returns a function that takes the head's listings of the nodes directory, and
// records which nodes have newly reached a state.
func (t *EventLog) NodesObserver() func(l signal.Listing) {
	known := make(map[record.State][]int)
	return func(l signal.Listing) {
		for _, state := range l.NodeStates() {
			nodes := l.NodesIn(state)
			if len(nodes) == len(known[state]) {
				continue
			}
			// Record only the nodes that the previous listing did not show.
			fresh := slices.DeleteFunc(slices.Clone(nodes), func(node int) bool {
				_, before := slices.BinarySearch(known[state], node)
				return before
			})
			known[state] = nodes
			t.WriteEvent(StateReached, Fields{ObjectFields: ObjectFields{State: state,
				NodeIndices: textutil.FormatRanges(fresh)}})
		}
	}
}

const (
	// maxProbeEvents bounds the number of events per service's probe, because each result may differ
	// from the one before.
	maxProbeEvents = 10
	// maxProbeResult bounds the recorded result of a probe, in bytes.
	maxProbeResult = 300
)

// LogProbe wraps the probe look of a child. The returned function records results that differ from
// the previous one.
func (t *EventLog) LogProbe(child string, look func(context.Context) error) func(context.Context) error {
	logged, events := "", 0
	return func(ctx context.Context) error {
		err := look(ctx)
		if ctx.Err() != nil {
			return err
		}
		if err == nil {
			t.WriteEvent(ProbeChanged, Fields{ObjectFields: ObjectFields{Child: child}, OK: new(true)})
			return nil
		}
		if seen := err.Error(); seen != logged && events < maxProbeEvents {
			logged, events = seen, events+1
			t.WriteEvent(ProbeChanged, Fields{ObjectFields: ObjectFields{Child: child}, OK: new(false),
				Seen: seen[:min(len(seen), maxProbeResult)]})
		}
		return err
	}
}
