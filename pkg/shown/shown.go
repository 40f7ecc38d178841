// Package shown exports the state of a daemon outside the run directory: as metrics for Prometheus,
// and to a service manager (systemd) that waits until the daemon is up.
package shown

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/metrics"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/systemd"
	"github.com/bringupd/bringupd/pkg/trail"
)

// Config configures the exports of a daemon. A failed export is logged, and does not end the job.
type Config struct {
	MetricsDir    string // directory of files for a Prometheus textfile collector; empty: none
	MetricsListen string // loopback address at which metrics are served; empty: none
	NotifySocket  string // the service manager's socket; empty: none
}

// Self describes the daemon.
type Self struct {
	ID      roles.Identity
	Role    roles.Role
	Program string // the program's version
	Trail   *trail.Trail
	Meter   *signal.Meter
	Log     *zap.Logger
}

// Shown exports the state of a daemon. Its methods are safe for concurrent use.
type Shown struct {
	cfg      Config
	self     Self
	file     *metrics.File     // nil if there is none
	endpoint *metrics.Endpoint // nil if there is none

	nodes  atomic.Pointer[signal.Watch] // watch of the nodes directory; nil except on the head
	checks atomic.Pointer[check.Report] // results of the last check; nil before the first
	up     atomic.Bool
	ends   sync.Once   // notifies the manager of the end
	deaf   atomic.Bool // the manager cannot be notified
}

// Begin starts the exports. It must be called before the daemon's other parts run. own is called
// with the path of a file that must be removed even if the daemon is killed.
func Begin(cfg Config, self Self, own func(path string)) *Shown {
	s := &Shown{cfg: cfg, self: self}
	self.Trail.Changed = s.phaseChanged
	if cfg.MetricsDir != "" {
		name := fmt.Sprintf("bringupd-%s-%d.prom", self.ID.RunName(), self.ID.Rank)
		s.file = metrics.Keep(filepath.Join(cfg.MetricsDir, name), s.metrics, func(err error) { self.Log.Warn(err.Error()) })
		own(s.file.Path())
	}
	if cfg.MetricsListen != "" {
		endpoint, err := metrics.Listen(cfg.MetricsListen, s.metrics)
		if err != nil {
			self.Log.Warn(err.Error())
			return s
		}
		s.endpoint = endpoint
		self.Log.Info("serves metrics", zap.String("at", endpoint.URL()))
	}
	return s
}

// Close ends the exports, and waits for that until ctx ends.
func (s *Shown) Close(ctx context.Context) {
	if s.endpoint != nil {
		s.endpoint.Close()
	}
	if s.file != nil {
		_ = s.file.Close(ctx) // ignore the error: the age of a remaining file shows that it is stale
	}
}

// phaseChanged is called when a phase begins or ends. entered is the phase that has begun, or
// empty.
func (s *Shown) phaseChanged(entered string) {
	s.renew()
	if entered != "" {
		s.notify(s.status(entered))
	}
}

// renew makes the metrics file be written soon.
func (s *Shown) renew() {
	if s.file != nil {
		s.file.Nudge()
	}
}

// status returns a status line for the service manager.
func (s *Shown) status(what string) string {
	return systemd.Status(fmt.Sprintf("run %s, rank %d: %s", s.self.ID.RunName(), s.self.ID.Rank, what))
}

// Up exports that the daemon is up. how is a short description.
func (s *Shown) Up(how string) {
	s.up.Store(true)
	s.renew()
	s.notify(systemd.Ready, s.status(how))
}

// Ending exports that the daemon ends, and the reason. Only the first call has an effect.
func (s *Shown) Ending(why string) {
	s.ends.Do(func() {
		s.up.Store(false)
		s.renew()
		s.notify(systemd.Stopping, s.status("ends: "+why))
	})
}

// Checks exports the results of the node's checks as metrics.
func (s *Shown) Checks(report check.Report) {
	s.checks.Store(&report)
	s.renew()
}

// Nodes exports the number of nodes in each state, from a watch of the nodes directory.
func (s *Shown) Nodes(nodes *signal.Watch) { s.nodes.Store(nodes) }

// notify sends lines to the service manager, if there is one. After a failure, it sends nothing
// more.
func (s *Shown) notify(lines ...string) {
	if s.cfg.NotifySocket == "" || s.deaf.Load() {
		return
	}
	if err := systemd.Notify(s.cfg.NotifySocket, lines...); err != nil && !s.deaf.Swap(true) {
		s.self.Log.Warn(err.Error())
	}
}

// metrics returns the present metrics in the text format.
func (s *Shown) metrics() []byte {
	t := metrics.NewText("run", s.self.ID.RunName(), "rank", strconv.Itoa(s.self.ID.Rank))
	t.Family("bringupd_info", "gauge", "What this daemon is; always 1.")
	t.Sample(1, "version", s.self.Program, "role", string(s.self.Role))
	t.Family("bringupd_up", "gauge", "1 while this node is up: on the head, while the gate is open.")
	t.Sample(map[bool]float64{true: 1}[s.up.Load()])
	t.Family("bringupd_phase_seconds", "gauge", "How long a phase of this node took, or takes so far.")
	for _, phase := range s.self.Trail.Lasted(time.Now()) {
		t.Sample(phase.Took.Seconds(), "phase", phase.Phase)
	}
	s.nodesTo(t)
	s.checksTo(t)
	spent := s.self.Meter.Spent()
	t.Family("bringupd_share_operations_total", "counter", "Calls of this daemon into the log directory's share.")
	for _, calls := range spent {
		t.Sample(float64(calls.Calls), "op", calls.Op.String())
	}
	t.Family("bringupd_share_operations_seconds_total", "counter", "How long those took that have come back.")
	for _, calls := range spent {
		t.Sample(calls.Busy.Seconds(), "op", calls.Op.String())
	}
	return t.Bytes()
}

// nodesTo adds the number of nodes in each state, on the head.
func (s *Shown) nodesTo(t *metrics.Text) {
	nodes := s.nodes.Load()
	if nodes == nil {
		return
	}
	t.Family("bringupd_nodes", "gauge", "Nodes of the job that have reached a state, as the head sees them.")
	t.Sample(float64(s.self.ID.Size), "state", "launched")
	last := nodes.Last()
	for _, state := range []string{signal.Joined, signal.Checked, signal.Sandbox, signal.Up, signal.Failed, signal.Done} {
		t.Sample(float64(len(last.Ranks(state))), "state", state)
	}
}

// checksTo adds the number of findings by check and verdict.
func (s *Shown) checksTo(t *metrics.Text) {
	report := s.checks.Load()
	if report == nil {
		return
	}
	counts := make(map[[2]string]float64)
	for _, f := range report.Findings {
		counts[[2]string{f.ID, string(f.Verdict)}]++
	}
	t.Family("bringupd_check", "gauge", "Findings of a check of this node, by what they say.")
	for _, of := range slices.SortedFunc(maps.Keys(counts), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		t.Sample(counts[of], "id", of[0], "verdict", of[1])
	}
}
