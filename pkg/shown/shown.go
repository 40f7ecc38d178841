// Package shown is what a daemon shows of itself outside of the run directory: to a
// collector of metrics, and to a service manager that waits for it.
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

// Config is where a daemon shows how it is. What can't be shown ends no job.
type Config struct {
	MetricsDir    string // of files for a collector of Prometheus; empty: none
	MetricsListen string // a loopback address that metrics are served at; empty: none
	NotifySocket  string // of a service manager that wants to be told; empty: none
}

// Self is the daemon that is shown.
type Self struct {
	ID      roles.Identity
	Role    roles.Role
	Program string // its version
	Trail   *trail.Trail
	Meter   *signal.Meter
	Log     *zap.Logger
}

// Shown is what a daemon shows.
type Shown struct {
	cfg      Config
	self     Self
	file     *metrics.File     // nil where there is none
	endpoint *metrics.Endpoint // likewise

	nodes  atomic.Pointer[signal.Watch] // over Nodes; nil on all but the head
	checks atomic.Pointer[check.Report] // the newest; nil before there is one
	up     atomic.Bool
	ends   sync.Once   // the manager is told
	deaf   atomic.Bool // the manager can't be told
}

// Begin begins to show how a daemon is; it comes before anything else of the daemon
// runs. Files that are to be removed should the daemon be killed are told to own.
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

// Close shows nothing more, and waits for that until ctx ends.
func (s *Shown) Close(ctx context.Context) {
	if s.endpoint != nil {
		s.endpoint.Close()
	}
	if s.file != nil {
		_ = s.file.Close(ctx) // a file that is left says so by its age
	}
}

// phaseChanged is called when a phase was entered or left.
func (s *Shown) phaseChanged(entered string) {
	s.renew()
	if entered != "" {
		s.notify(s.status(entered))
	}
}

func (s *Shown) renew() {
	if s.file != nil {
		s.file.Nudge()
	}
}

func (s *Shown) status(what string) string {
	return systemd.Status(fmt.Sprintf("run %s, rank %d: %s", s.self.ID.RunName(), s.self.ID.Rank, what))
}

// Up shows that the daemon is up, and how.
func (s *Shown) Up(how string) {
	s.up.Store(true)
	s.renew()
	s.notify(systemd.Ready, s.status(how))
}

// Ending shows, once, that the daemon ends, and why.
func (s *Shown) Ending(why string) {
	s.ends.Do(func() {
		s.up.Store(false)
		s.renew()
		s.notify(systemd.Stopping, s.status("ends: "+why))
	})
}

// Checks shows what the checks of the node say.
func (s *Shown) Checks(report check.Report) {
	s.checks.Store(&report)
	s.renew()
}

// Nodes has what a watch over Nodes sees be shown, too.
func (s *Shown) Nodes(nodes *signal.Watch) { s.nodes.Store(nodes) }

// notify tells the service manager, where there is one that asks for it. One
// that can't be told is not tried again.
func (s *Shown) notify(lines ...string) {
	if s.cfg.NotifySocket == "" || s.deaf.Load() {
		return
	}
	if err := systemd.Notify(s.cfg.NotifySocket, lines...); err != nil && !s.deaf.Swap(true) {
		s.self.Log.Warn(err.Error())
	}
}

// metrics are how the daemon is now.
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

// nodesTo counts the nodes of a job by the states that they have reached.
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

// checksTo counts what the checks have found, by check and verdict.
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
