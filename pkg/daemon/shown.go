package daemon

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
)

// ShownConfig is where a daemon shows how it is, outside of the run directory.
// What can't be shown ends no job.
type ShownConfig struct {
	MetricsDir    string // of files for a collector of Prometheus; empty: none
	MetricsListen string // a loopback address that metrics are served at; empty: none
	NotifySocket  string // of a service manager that wants to be told; empty: none
}

// shown is what a daemon shows there.
type shown struct {
	role     roles.Role
	file     *metrics.File     // nil where there is none
	endpoint *metrics.Endpoint // likewise

	nodes  atomic.Pointer[signal.Watch] // over Nodes; nil on all but the head
	checks atomic.Pointer[check.Report] // the newest; nil before there is one
	up     atomic.Bool
	ends   sync.Once   // the manager is told
	deaf   atomic.Bool // the manager can't be told
}

var _ metrics.Source = (*node)(nil)

// show begins to show how this daemon is. It is called before anything else of
// the daemon runs.
func (n *node) show(role roles.Role) {
	n.shown.role = role
	n.trail.Changed = n.phaseChanged
	if dir := n.cfg.Shown.MetricsDir; dir != "" {
		n.shown.file = metrics.Keep(dir, n, func(err error) { n.log.Warn(err.Error()) })
		n.super.Own(n.shown.file.Path())
	}
	if address := n.cfg.Shown.MetricsListen; address != "" {
		endpoint, err := metrics.Listen(address, n)
		if err != nil {
			n.log.Warn(err.Error())
			return
		}
		n.shown.endpoint = endpoint
		n.log.Info("serves metrics", zap.String("at", endpoint.URL()))
	}
}

// hide shows nothing more, and waits for that until ctx ends.
func (n *node) hide(ctx context.Context) {
	if n.shown.endpoint != nil {
		n.shown.endpoint.Close()
	}
	if n.shown.file != nil {
		_ = n.shown.file.Close(ctx) // a file that is left says so by its age
	}
}

// phaseChanged is called when a phase was entered or left.
func (n *node) phaseChanged(entered string) {
	n.renew()
	if entered != "" {
		n.notify(n.status(entered))
	}
}

func (n *node) renew() {
	if n.shown.file != nil {
		n.shown.file.Nudge()
	}
}

func (n *node) status(what string) string {
	return systemd.Status(fmt.Sprintf("run %s, rank %d: %s", n.cfg.Identity.RunName(), n.cfg.Identity.Rank, what))
}

// isUp shows that this node is up.
func (n *node) isUp(how string) {
	if n.life.Err() != nil {
		return
	}
	n.shown.up.Store(true)
	n.renew()
	n.notify(systemd.Ready, n.status(how))
}

// isEnding shows that this node ends.
func (n *node) isEnding(why string) {
	n.shown.ends.Do(func() {
		n.shown.up.Store(false)
		n.renew()
		n.notify(systemd.Stopping, n.status("ends: "+why))
	})
}

// showChecks shows what the checks of this node say.
func (n *node) showChecks(report check.Report) {
	n.shown.checks.Store(&report)
	n.renew()
}

// notify tells the service manager, where there is one that asks for it. One
// that can't be told is not tried again.
func (n *node) notify(lines ...string) {
	if n.cfg.Shown.NotifySocket == "" || n.shown.deaf.Load() {
		return
	}
	if err := systemd.Notify(n.cfg.Shown.NotifySocket, lines...); err != nil && !n.shown.deaf.Swap(true) {
		n.log.Warn(err.Error())
	}
}

// Snapshot is how this daemon is now.
func (n *node) Snapshot() metrics.Snapshot {
	s := metrics.Snapshot{
		Run: n.cfg.Identity.RunName(), Rank: n.cfg.Identity.Rank, Role: string(n.shown.role), Version: n.cfg.Program,
		Up: n.shown.up.Load(),
	}
	for _, phase := range n.trail.Lasted(time.Now()) {
		s.Phases = append(s.Phases, metrics.Phase{Name: phase.Phase, Took: phase.Took})
	}
	if nodes := n.shown.nodes.Load(); nodes != nil {
		s.Nodes = countNodes(nodes.Last(), n.cfg.Identity.Size)
	}
	if report := n.shown.checks.Load(); report != nil {
		s.Checks = countFindings(report.Findings)
	}
	for _, spent := range n.cfg.Access.Meter.Spent() {
		s.Share = append(s.Share, metrics.Calls{Op: spent.Op.String(), Count: spent.Calls, Busy: spent.Busy})
	}
	return s
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
