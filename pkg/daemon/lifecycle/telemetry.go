package lifecycle

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// metricsInterval is the maximum interval at which the file is written. Most collectors read it
// about as often.
const metricsInterval = 15 * time.Second

// TelemetrySource has the daemon's state that its telemetry exports.
type TelemetrySource struct {
	ID      launcher.Identity
	Role    roles.DaemonRole
	Program string // the program's version
	Events  *eventlog.EventLog
	Meter   *signal.CallMeter
	Log     *zap.Logger
}

// Telemetry exports the state of a daemon outside the run directory: it writes metrics for
// Prometheus to a file as long as the daemon runs. Its methods are safe for concurrent use.
type Telemetry struct {
	daemon TelemetrySource
	isUp   atomic.Bool
	job    atomic.Pointer[jobTelemetry] // nil except on the head

	path           string        // the file's; empty if there is none
	writeRequested chan struct{} // buffered by one: write now
	stopped        chan struct{} // closed by Close
	ended          chan struct{} // closed when the file has been removed
}

// jobTelemetry has the sources of the state of the job.
type jobTelemetry struct {
	nodes *signal.Watch           // watches the nodes directory
	steps func() *record.Progress // returns nil if it is unknown
}

// StartTelemetry starts the export to a file in metricsDir, which is empty for none. It must be called
// before the daemon's other parts run. own is called with a file that must be removed even if the
// daemon is killed.
func StartTelemetry(metricsDir string, self TelemetrySource, own func(files.OwnedPath)) *Telemetry {
	s := &Telemetry{daemon: self, writeRequested: make(chan struct{}, 1), stopped: make(chan struct{}),
		ended: make(chan struct{})}
	if metricsDir == "" {
		close(s.ended)
		return s
	}
	s.path = filepath.Join(metricsDir, fmt.Sprintf("bringupd-%s-%d.prom", self.ID.RunName(), self.ID.NodeIndex))
	self.Events.OnPhaseChange = s.requestWrite
	own(files.OwnedPath{Path: s.path})
	go s.writeLoop()
	return s
}

// Close removes the file. It waits for that until ctx ends, because a file system may hang: the age
// of a file that is left shows that it is stale. It must be called only once.
func (s *Telemetry) Close(ctx context.Context) {
	close(s.stopped)
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
}

// requestWrite makes the file be written soon. It does not wait for that.
func (s *Telemetry) requestWrite() {
	select {
	case s.writeRequested <- struct{}{}:
	default:
	}
}

// writeLoop writes the file until Close, and then removes it. It logs an error once, until a write
// has succeeded.
func (s *Telemetry) writeLoop() {
	defer close(s.ended)
	tick := time.NewTicker(metricsInterval)
	defer tick.Stop()
	for lastFailed := false; ; {
		// Other users may read the file, because a node-exporter usually runs as another user.
		err := files.ReplaceFile(s.path, s.collectMetrics(), 0o644)
		if err != nil && !lastFailed {
			s.daemon.Log.Warn("cannot write the metrics", zap.Error(err))
		}
		lastFailed = err != nil
		select {
		case <-s.stopped:
			if err := os.Remove(s.path); err != nil && !os.IsNotExist(err) {
				s.daemon.Log.Warn("cannot remove the metrics", zap.Error(err))
			}
			return
		case <-tick.C:
		case <-s.writeRequested:
		}
	}
}

// ReportUp exports whether the daemon is up.
func (s *Telemetry) ReportUp(up bool) {
	s.isUp.Store(up)
	s.requestWrite()
}

// WatchNodes exports the number of nodes in each state, from a watch of the nodes directory, and the
// progress of the job, which a function returns. It is nil if it is unknown.
func (s *Telemetry) WatchNodes(nodes *signal.Watch, steps func() *record.Progress) {
	s.job.Store(&jobTelemetry{nodes, steps})
}

// collectMetrics returns the present metrics in the text format.
func (s *Telemetry) collectMetrics() []byte {
	t := &metricsText{common: formatLabels("run", s.daemon.ID.RunName(), "rank", strconv.Itoa(s.daemon.ID.NodeIndex))}
	t.startFamily("bringupd_info", "gauge", "Identity of this daemon; always 1.")
	t.addSample(1, "version", s.daemon.Program, "role", string(s.daemon.Role))
	t.startFamily("bringupd_up", "gauge", "1 while this node is up; on the head, while the gate is open.")
	t.addSample(map[bool]float64{true: 1}[s.isUp.Load()])
	t.startFamily("bringupd_phase_seconds", "gauge", "Duration of a phase of this node, so far if it has not ended.")
	for _, phase := range s.daemon.Events.PhaseDurations(time.Now()) {
		t.addSample(phase.Took.Seconds(), "phase", string(phase.Phase))
	}
	if job := s.job.Load(); job != nil {
		t.startFamily("bringupd_nodes", "gauge", "Nodes of the job that have reached a state, as seen by the head.")
		t.addSample(float64(s.daemon.ID.Size), "state", "launched")
		last := job.nodes.LastListing()
		for _, state := range []record.State{record.StateJoined, record.StateChecked,
			record.StateSandboxReady, record.StateServiceUp, record.StateFailed, record.StateDone} {
			t.addSample(float64(len(last.NodesIn(state))), "state", string(state))
		}
		t.addProgress(job.steps())
	}
	spent := s.daemon.Meter.OpStats()
	t.startFamily("bringupd_share_operations_total", "counter",
		"Calls of this daemon to the shared file system of the log directory.")
	for _, calls := range spent {
		t.addSample(float64(calls.Calls), "op", string(calls.Op))
	}
	t.startFamily("bringupd_share_operations_seconds_total", "counter", "Duration of the calls that have returned.")
	for _, calls := range spent {
		t.addSample(calls.Busy.Seconds(), "op", string(calls.Op))
	}
	return t.buffer.Bytes()
}
