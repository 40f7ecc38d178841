// Package telemetry exports the state of a daemon outside the run directory, as metrics for
// Prometheus.
package telemetry

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// DaemonInfo describes the daemon.
type DaemonInfo struct {
	ID      launcher.Identity
	Role    roles.DaemonRole
	Program string // the program's version
	Events  *eventlog.EventLog
	Meter   *signal.CallMeter
	Log     *zap.Logger
}

// Telemetry exports the state of a daemon. Its methods are safe for concurrent use.
type Telemetry struct {
	daemon DaemonInfo
	file   *File // nil if there is none

	nodeWatch   atomic.Pointer[signal.Watch] // watch of the nodes directory; nil except on the head
	steps       atomic.Pointer[func() *record.Progress]
	checkReport atomic.Pointer[check.Report] // results of the last check; nil before the first
	isUp        atomic.Bool
}

// StartTelemetry starts the exports to files in metricsDir, which is empty for none. It must be called
// before the daemon's other parts run. own is called with a file that must be removed even if the
// daemon is killed.
func StartTelemetry(metricsDir string, self DaemonInfo, own func(files.OwnedPath)) *Telemetry {
	s := &Telemetry{daemon: self}
	self.Events.OnPhaseChange = s.requestWrite
	if metricsDir != "" {
		name := fmt.Sprintf("bringupd-%s-%d.prom", self.ID.RunName(), self.ID.NodeIndex)
		s.file = StartFile(filepath.Join(metricsDir, name), s.collectMetrics,
			func(err error) { self.Log.Warn(err.Error()) })
		own(files.OwnedPath{Path: s.file.Path()})
	}
	return s
}

// Close ends the exports, and waits for that until ctx ends.
func (s *Telemetry) Close(ctx context.Context) {
	if s.file != nil {
		_ = s.file.Close(ctx) // ignore the error: the age of a remaining file shows that it is stale
	}
}

// requestWrite makes the metrics file be written soon.
func (s *Telemetry) requestWrite() {
	if s.file != nil {
		s.file.RequestWrite()
	}
}

// ReportUp exports whether the daemon is up.
func (s *Telemetry) ReportUp(up bool) {
	s.isUp.Store(up)
	s.requestWrite()
}

// SetCheckReport exports the results of the node's checks.
func (s *Telemetry) SetCheckReport(report check.Report) {
	s.checkReport.Store(&report)
	s.requestWrite()
}

// WatchNodes exports the number of nodes in each state, from a watch of the nodes directory, and the
// progress of the job, which a function returns. It is nil if it is unknown.
func (s *Telemetry) WatchNodes(nodes *signal.Watch, steps func() *record.Progress) {
	s.steps.Store(&steps)
	s.nodeWatch.Store(nodes)
}

// collectMetrics returns the present metrics in the text format.
func (s *Telemetry) collectMetrics() []byte {
	t := NewText("run", s.daemon.ID.RunName(), "rank", strconv.Itoa(s.daemon.ID.NodeIndex))
	t.StartFamily("bringupd_info", "gauge", "Identity of this daemon; always 1.")
	t.AddSample(1, "version", s.daemon.Program, "role", string(s.daemon.Role))
	t.StartFamily("bringupd_up", "gauge", "1 while this node is up; on the head, while the gate is open.")
	t.AddSample(map[bool]float64{true: 1}[s.isUp.Load()])
	t.StartFamily("bringupd_phase_seconds", "gauge", "Duration of a phase of this node, so far if it has not ended.")
	for _, phase := range s.daemon.Events.PhaseDurations(time.Now()) {
		t.AddSample(phase.Took.Seconds(), "phase", string(phase.Phase))
	}
	s.addNodeMetrics(t)
	s.addCheckMetrics(t)
	s.addProgressMetrics(t)
	spent := s.daemon.Meter.OpStats()
	t.StartFamily("bringupd_share_operations_total", "counter",
		"Calls of this daemon to the shared file system of the log directory.")
	for _, calls := range spent {
		t.AddSample(float64(calls.Calls), "op", string(calls.Op))
	}
	t.StartFamily("bringupd_share_operations_seconds_total", "counter", "Duration of the calls that have returned.")
	for _, calls := range spent {
		t.AddSample(calls.Busy.Seconds(), "op", string(calls.Op))
	}
	return t.Bytes()
}

// addNodeMetrics adds the number of nodes in each state, on the head.
func (s *Telemetry) addNodeMetrics(t *Text) {
	nodes := s.nodeWatch.Load()
	if nodes == nil {
		return
	}
	t.StartFamily("bringupd_nodes", "gauge", "Nodes of the job that have reached a state, as seen by the head.")
	t.AddSample(float64(s.daemon.ID.Size), "state", "launched")
	last := nodes.LastListing()
	for _, state := range []record.State{record.StateJoined, record.StateChecked,
		record.StateSandboxReady, record.StateServiceUp, record.StateFailed, record.StateDone} {
		t.AddSample(float64(len(last.NodesIn(state))), "state", string(state))
	}
}

// addProgressMetrics adds the progress of the job, on the head.
func (s *Telemetry) addProgressMetrics(t *Text) {
	source := s.steps.Load()
	if source == nil {
		return
	}
	p := (*source)()
	if p == nil || p.Reports == 0 {
		return
	}
	add := func(name, help string, value float64) {
		t.StartFamily(name, "gauge", help)
		t.AddSample(value)
	}
	add("bringupd_step", "Newest step of the program in this attempt.", p.Step)
	add("bringupd_step_max", "Maximum step of all attempts.", p.MaxStep)
	add("bringupd_steps_per_second", "Rate of the newest steps.", p.Rate)
	add("bringupd_goodput_ratio", "Part of the time in which the step advanced beyond its maximum before.", p.Goodput)
	lost := 0.0
	for _, l := range p.Lost {
		lost += l.Steps
	}
	add("bringupd_lost_steps", "Steps repeated after restarts.", lost)
	if p.Slowest != nil {
		t.StartFamily("bringupd_slowest_step", "gauge", "Step of the slowest rank.")
		labels := []string{"world_rank", strconv.Itoa(p.Slowest.Rank), "node", strconv.Itoa(p.Slowest.NodeIndex)}
		if p.Slowest.World != "" {
			labels = append(labels, "instance", p.Slowest.World)
		}
		t.AddSample(p.Slowest.Step, labels...)
		add("bringupd_median_step", "Median step of all ranks or nodes.", p.Slowest.Median)
	}
}

// addCheckMetrics adds the number of findings by check and verdict.
func (s *Telemetry) addCheckMetrics(t *Text) {
	report := s.checkReport.Load()
	if report == nil {
		return
	}
	counts := make(map[[2]string]float64)
	for _, f := range report.Findings {
		counts[[2]string{f.ID, string(f.Verdict)}]++
	}
	t.StartFamily("bringupd_check", "gauge", "Findings of a check of this node, by severity.")
	for _, of := range slices.SortedFunc(maps.Keys(counts),
		func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		t.AddSample(counts[of], "id", of[0], "verdict", of[1])
	}
}
