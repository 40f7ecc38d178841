package daemon

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// trail is what a daemon leaves behind for people: events, one JSON object a
// line, and its log. Both wait in memory until there is a run directory.
type trail struct {
	began  time.Time
	events *signal.Journal
	logs   *signal.Journal

	mu      sync.Mutex
	encoder zapcore.Encoder // guarded by mu
	current string          // the phase entered last, guarded by mu
	phases  []signal.PhaseTime
	stays   []stay // in phases, guarded by mu

	changed func(entered string) // told of each change of phase; nil: nobody
	exits   map[string]bool      // of which children it has been told, guarded by mu
}

func newTrail() *trail {
	t := &trail{
		began: time.Now(), events: signal.NewJournal(), logs: signal.NewJournal(), current: "start",
		exits: make(map[string]bool),
		encoder: zapcore.NewJSONEncoder(zapcore.EncoderConfig{
			TimeKey: "at", MessageKey: "event", EncodeTime: zapcore.RFC3339NanoTimeEncoder,
			EncodeDuration: zapcore.NanosDurationEncoder,
		}),
	}
	t.encoder.AddInt("v", signal.EventVersion)
	return t
}

// open gives the trail its files, which are named after the kind of daemon: a
// sandbox's own daemon has the rank of the node's other one.
func (t *trail) open(dir *signal.Dir, id roles.Identity, kind string) {
	t.mu.Lock() // the node is looked at already, and its checks may be waiting
	t.encoder.AddInt("rank", id.Rank)
	t.encoder.AddString("host", id.Host)
	t.mu.Unlock()
	t.events.Open(dir.LogFile(signal.Events, signal.EventsName(kind, id.Rank, id.Size)))
	t.logs.Open(dir.LogFile(signal.Logs, signal.LogName(kind, id.Rank, id.Size)))
}

// event writes one event; its time is this node's, its offset counts from the
// daemon's start on the monotonic clock.
func (t *trail) event(name signal.EventWord, fields ...zap.Field) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fields = append(fields, zap.Int64("since_start_ns", time.Since(t.began).Nanoseconds()), zap.String("phase", t.current))
	line, err := t.encoder.EncodeEntry(zapcore.Entry{Time: time.Now(), Message: string(name)}, fields)
	if err != nil {
		return
	}
	_, _ = t.events.Write(line.Bytes())
	line.Free()
}

// enter says which phase the node is in from now on.
func (t *trail) enter(phase string) {
	t.mu.Lock()
	t.current = phase
	t.enterStay(phase, time.Now())
	t.mu.Unlock()
	t.event(signal.EventEnter)
	t.tell(phase)
}

func (t *trail) tell(entered string) {
	if t.changed != nil {
		t.changed(entered)
	}
}

// phase returns the phase entered last.
func (t *trail) phase() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}

// passed notes how long a phase took.
func (t *trail) passed(phase string, took time.Duration, err error) {
	t.mu.Lock()
	t.phases = append(t.phases, signal.PhaseTime{Phase: phase, Took: took})
	t.leaveStay(phase, took)
	t.mu.Unlock()
	t.tell("")
	t.event(signal.EventLeave, zap.String("left", phase), zap.Int64("took_ns", took.Nanoseconds()), zap.Bool("ok", err == nil || orderly(err)))
}

// orderly tells whether what ended a phase is the end that was hoped for.
func orderly(err error) bool {
	var end *ending
	return errors.As(err, &end) && end.orderly
}

// times returns the phases passed so far.
func (t *trail) times() []signal.PhaseTime {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]signal.PhaseTime(nil), t.phases...)
}

// sync has what is there written while the node does other things.
func (t *trail) sync() {
	_ = t.events.Sync()
	_ = t.logs.Sync()
}

func (t *trail) close(ctx context.Context) {
	var closing sync.WaitGroup
	closing.Go(func() { _ = t.events.Close(ctx) })
	closing.Go(func() { _ = t.logs.Close(ctx) })
	closing.Wait()
}

// phase runs a part of the sequence and leaves its traces.
func (n *node) phase(name string, part func() error) error {
	n.trail.enter(name)
	begin := time.Now()
	err := part()
	n.trail.passed(name, time.Since(begin), err)
	if err != nil {
		// What fails after another part has entered its own phase still
		// failed in this one. Other parts may have come back with the very
		// same failure, where it ended them all: it is not to be changed.
		var f *failure
		if errors.As(err, &f) && f.Phase == "" {
			stamped := *f
			stamped.Phase = name
			return &stamped
		}
		return err
	}
	n.log.Info("phase "+name+" is over", zap.Duration("took", time.Since(begin).Round(10*time.Microsecond)))
	return nil
}
