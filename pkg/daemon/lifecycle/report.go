package lifecycle

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Reports has what this daemon reports to the head, or, on the head, to the other nodes.
type Reports struct {
	// Send sends a report to the head at once: by the peer link, or to the head's watch on its own
	// node. It must not block. It is nil if there is neither.
	Send func(name string, content []byte)
	// SendOrder makes a name in ControlDir known to all nodes at once. It is nil on other nodes
	// than the head.
	SendOrder func(name string, content []byte)

	mu        sync.Mutex
	unwritten []*report                  // in their order; guarded by mu
	newest    map[string]<-chan struct{} // the newest report's tried, by subject; guarded by mu
}

// report is a name in NodesDir, with a record or without content.
type report struct {
	name    string
	content []byte
	durable bool
	isLast  bool          // it is sent only if the first attempt to write it has failed
	tried   chan struct{} // closed after that attempt
	writing atomic.Bool   // an attempt to write it is in progress
}

// The pauses between two attempts to write a report double.
const (
	minReportPause = time.Second
	maxReportPause = 10 * time.Second
)

// Report reports a name of this node to the head, with a record unless rec is nil. It does not
// wait: the report is sent to the head at once, and again after each reconnection, until it is
// published in NodesDir. An attempt to publish it that fails is repeated until the end of this
// daemon. Reports about one instance are sent in their order, and published in their order as long
// as that does not fail. The returned channel is closed after the first attempt.
func (r *Publisher) Report(name string, rec record.Record, durable bool) (tried <-chan struct{}) {
	return r.startReport(&report{name: name, durable: durable}, rec)
}

// ReportDone reports that the processes of this node have ended, and that its daemon writes nothing
// more. Therefore it is sent to the head only if it cannot be published.
func (r *Publisher) ReportDone(rec *record.Done) (tried <-chan struct{}) {
	return r.startReport(&report{name: r.Dir.NodeName(r.NodeIndex, record.StateDone), isLast: true}, rec)
}

// startReport starts to send and to publish a report.
func (r *Publisher) startReport(one *report, rec record.Record) (tried <-chan struct{}) {
	one.tried = make(chan struct{})
	var err error
	if one.content, err = r.Dir.EncodeReport(rec); err != nil {
		r.LogWriteError(err)
		close(one.tried)
		return one.tried
	}
	reports := &r.Reports
	reports.mu.Lock()
	defer reports.mu.Unlock()
	subject := subjectOf(one.name)
	before := reports.newest[subject]
	if reports.newest == nil {
		reports.newest = make(map[string]<-chan struct{})
	}
	reports.newest[subject] = one.tried
	reports.unwritten = append(reports.unwritten, one)
	if !one.isLast {
		reports.send(one)
	}
	r.Background(func(ctx context.Context) { r.writeReport(ctx, one, before) })
	return one.tried
}

// subjectOf returns what a name in NodesDir is about: the instance, or what precedes a number.
func subjectOf(name string) string {
	parts := strings.SplitN(name, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// send sends a report, if possible. mu must be held.
func (r *Reports) send(one *report) {
	if r.Send != nil {
		r.Send(one.name, one.content)
	}
}

func (r *Reports) sendAgain(one *report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.send(one)
}

// Order publishes a name in ControlDir. If that fails, all nodes learn of it by their peer links as
// far as they have some, and the caller tries again.
func (r *Publisher) Order(name string) error {
	err := r.MarkName(signal.ControlDir, name)
	r.LogWriteError(err)
	if err != nil && r.Reports.SendOrder != nil {
		r.Reports.SendOrder(name, nil)
	}
	return err
}

// SendUnwritten sends all reports again that are not published yet: there is a new connection.
func (r *Reports) SendUnwritten() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.unwritten {
		if !one.isLast { // it is sent once it has failed
			r.send(one)
		}
	}
}

// AwaitTried waits until this daemon has tried once to publish each report, at most for the given
// time.
func (r *Reports) AwaitTried(within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	r.mu.Lock()
	left := slices.Clone(r.unwritten)
	r.mu.Unlock()
	for _, one := range left {
		ctxutil.AwaitDone(ctx, one.tried)
	}
}

// writeReport publishes a report. It gives up when ctx ends.
func (r *Publisher) writeReport(ctx context.Context, one *report, before <-chan struct{}) {
	if before != nil {
		ctxutil.AwaitDone(ctx, before)
	}
	err := r.tryReport(one, false)
	if err != nil && one.isLast {
		r.Reports.sendAgain(one)
	}
	close(one.tried)
	r.LogWriteError(err)
	for pause := minReportPause; err != nil && ctxutil.SleepContext(ctx, pause); pause = min(2*pause, maxReportPause) {
		r.Reports.sendAgain(one)
		// The attempt before may still be completed, also if its deadline has passed.
		if one.writing.Load() || r.FileSystemSilence() > UnresponsiveTimeout {
			continue
		}
		if err = r.tryReport(one, true); err == nil {
			r.Log.Debug("published what could not be written before", zap.String("name", one.name))
		}
	}
	r.Reports.mu.Lock()
	defer r.Reports.mu.Unlock()
	r.Reports.unwritten = slices.DeleteFunc(r.Reports.unwritten, func(other *report) bool { return other == one })
}

// tryReport makes an attempt to publish a report. It may return while the attempt is in progress.
func (r *Publisher) tryReport(one *report, again bool) error {
	one.writing.Store(true)
	return r.publishAndNotify(signal.NodesDir, one.name, func(ctx context.Context) error {
		defer one.writing.Store(false)
		return r.Dir.WriteReport(ctx, one.name, one.content, one.durable, again)
	})
}
