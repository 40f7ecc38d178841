// Package shown is what a daemon shows of itself outside of the run directory: to a
// collector of metrics, and to a service manager that waits for it.
package shown

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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

var _ metrics.Source = (*Shown)(nil)

// Begin begins to show how a daemon is; it comes before anything else of the daemon
// runs. Files that are to be removed should the daemon be killed are told to own.
func Begin(cfg Config, self Self, own func(path string)) *Shown {
	s := &Shown{cfg: cfg, self: self}
	self.Trail.Changed = s.phaseChanged
	if cfg.MetricsDir != "" {
		s.file = metrics.Keep(cfg.MetricsDir, s, func(err error) { self.Log.Warn(err.Error()) })
		own(s.file.Path())
	}
	if cfg.MetricsListen != "" {
		endpoint, err := metrics.Listen(cfg.MetricsListen, s)
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

// Snapshot returns how the daemon is now.
func (s *Shown) Snapshot() metrics.Snapshot {
	now := metrics.Snapshot{
		Run: s.self.ID.RunName(), Rank: s.self.ID.Rank, Role: string(s.self.Role), Version: s.self.Program, Up: s.up.Load(),
	}
	for _, phase := range s.self.Trail.Lasted(time.Now()) {
		now.Phases = append(now.Phases, metrics.Phase{Name: phase.Phase, Took: phase.Took})
	}
	if nodes := s.nodes.Load(); nodes != nil {
		now.Nodes = countNodes(nodes.Last(), s.self.ID.Size)
	}
	if report := s.checks.Load(); report != nil {
		now.Checks = countFindings(report.Findings)
	}
	for _, spent := range s.self.Meter.Spent() {
		now.Share = append(now.Share, metrics.Calls{Op: spent.Op.String(), Count: spent.Calls, Busy: spent.Busy})
	}
	return now
}

// countNodes counts the nodes of a job by the states that they have reached.
func countNodes(l signal.Listing, size int) []metrics.Nodes {
	counts := []metrics.Nodes{{State: "launched", Count: size}}
	for _, state := range []string{signal.Joined, signal.Checked, signal.Sandbox, signal.Up, signal.Failed, signal.Done} {
		counts = append(counts, metrics.Nodes{State: state, Count: len(l.Ranks(state))})
	}
	return counts
}

// countFindings counts what checks have found, by check and verdict.
func countFindings(findings []check.Finding) []metrics.Check {
	counts := make(map[metrics.Check]int)
	for _, f := range findings {
		counts[metrics.Check{ID: f.ID, Verdict: string(f.Verdict)}]++
	}
	var all []metrics.Check
	for one, count := range counts {
		one.Count = count
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b metrics.Check) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Verdict, b.Verdict))
	})
	return all
}
