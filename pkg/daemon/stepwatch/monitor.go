// Package stepwatch follows the progress of a job: each daemon finds steps in the output of its
// programs, and publishes how far its slowest rank has got, or that of each instance of a role; the
// head derives the progress of the job.
package stepwatch

import (
	"cmp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Store provides access to the run directory.
type Store struct {
	Dir *signal.Dir
	// Nodes is the head's watch of [signal.NodesDir]. It is nil on other nodes.
	Nodes        *signal.Watch
	WriteTimeout time.Duration
	OnWriteError func(err error)
	// OnStep is called on the head when the job's step is published. It may be nil.
	OnStep func(step float64)
}

// driverRank is the rank of a driver that is not a world of ranks, and of the process of an instance
// that has only one.
const driverRank = -1

// Process is a process of an instance of a role. Generations of an instance follow each other.
type Process struct {
	Instance, Generation int
	Rank                 int // in the instance; -1 if the instance has only one process
}

// Monitor follows the progress on one node and, on the head, that of the job. It is safe for
// concurrent use. Without any step, it costs nothing.
type Monitor struct {
	nodeIndex, size int
	pattern         *progress.Pattern // nil if no lines are watched
	hasRanks        bool              // ranks can report steps themselves
	// jobStart is the start of the job on this daemon's clock, which includes earlier attempts.
	jobStart time.Time
	started  time.Time
	first    chan struct{} // closed at the first step

	mu        sync.Mutex
	own       ownSteps                  // this node's
	processes map[string]Process        // the instances', by the name of the child
	ranks     Process                   // the instance and generation of the ranks of flags
	worlds    func(instance int) string // returns the name of an instance; nil without roles
	job       jobSteps                  // used only on the head

	store      atomic.Pointer[Store] // nil before [Monitor.Run]
	publishing sync.Mutex            // guards the following fields
	published  map[int]publishedName // the names of this node's steps, by instance
	number     int                   // number of the next record of the job's progress
	lastState  publishedState        // the last one's
}

// publishedName is the name of a step in the run directory. uncertain is the name that has replaced
// it, perhaps, because the change has reported an error; empty otherwise.
type publishedName struct{ name, uncertain string }

// publishedState is what must change before the progress of the job is published again.
type publishedState struct {
	reports int64
	slowest record.SlowestRank
}

// New returns the monitor of a daemon with this configuration, which must be valid.
func New(cfg *deps.Config) *Monitor {
	id := &cfg.Identity
	m := &Monitor{
		nodeIndex: record.NodeOfMember(id.NodeIndex, id.Size), size: id.Size,
		hasRanks: cfg.World.IsRequested() || cfg.Roles.AreGiven(), started: time.Now(), first: make(chan struct{}),
		ranks: Process{Instance: signal.NoInstance},
		own:   newOwnSteps(), processes: make(map[string]Process), published: make(map[int]publishedName),
	}
	m.jobStart = cmp.Or(cfg.FirstStart, m.started).Add(-cfg.Previous.EarlierDuration)
	if cfg.Progress != "" {
		m.pattern, _ = progress.ParsePattern(cfg.Progress) // the flag has been validated
	}
	before := cmp.Or(cfg.Previous.History.Progress, new(record.Progress))
	m.job = newJobSteps(progress.NewAccount(*before, id.Attempt))
	return m
}

// SetWorlds sets the function that returns the names of the instances of roles, by their numbers.
func (m *Monitor) SetWorlds(name func(instance int) string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.worlds = name
}

// StartRanks makes the ranks of flags a generation of an instance.
func (m *Monitor) StartRanks(instance, generation int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ranks = Process{Instance: instance, Generation: generation}
}

// ResetGained makes the head determine anew whether the job gains a step: its ranks are started
// again.
func (m *Monitor) ResetGained() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.job.account.ResetGained()
}

// AddProcess makes a child that is about to start a process of an instance, whose steps count.
func (m *Monitor) AddProcess(child string, p Process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.processes[child] = p
}

// WatchLines returns a function that finds steps in the lines of a child, or nil if none are
// watched.
func (m *Monitor) WatchLines(child string) func(lines []byte) {
	if m.pattern == nil {
		return nil
	}
	p := m.processOf(child)
	return func(lines []byte) {
		if step, found := m.pattern.LastStep(lines); found {
			m.ReportProcessStep(p, step)
		}
	}
}

// processOf returns the process that a child is. Children that are not processes of instances are
// ranks or the driver.
func (m *Monitor) processOf(child string) Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, known := m.processes[child]; known {
		return p
	}
	return m.rankProcess(rankOf(child))
}

// rankProcess returns the process of a rank of flags, or of the driver. mu must be held.
func (m *Monitor) rankProcess(rank int) Process {
	if rank == driverRank {
		return Process{Instance: signal.NoInstance, Rank: rank}
	}
	return Process{Instance: m.ranks.Instance, Generation: m.ranks.Generation, Rank: rank}
}

func rankOf(child string) int {
	if digits, is := strings.CutPrefix(child, "rank "); is {
		rank, _ := strconv.Atoi(digits) // service.RankName has formatted the number
		return rank
	}
	return driverRank
}

// LastStep returns the newest step of the driver, a rank or a process of an instance of this node.
// known is false if there is none.
func (m *Monitor) LastStep(child string) (step float64, known bool) {
	p := m.processOf(child)
	if p.Rank == driverRank && p.Instance == signal.NoInstance && !service.IsUserProgram(child) {
		return 0, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.own.last(p)
}

// ReportStep records a step of a rank of this node, or of the driver if rank is -1.
func (m *Monitor) ReportStep(rank int, step float64) {
	m.mu.Lock()
	p := m.rankProcess(rank)
	m.mu.Unlock()
	m.ReportProcessStep(p, step)
}

// ReportProcessStep records a step of a process of an instance. Steps of earlier generations are
// ignored.
func (m *Monitor) ReportProcessStep(p Process, step float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.own.hasAny() {
		close(m.first)
	}
	at := time.Since(m.started)
	m.own.add(p, at, step)
	m.job.addToAccount(at, m.own.list(m.nodeIndex))
}

// CountChanges returns the number of changes of the steps of this node's processes of a generation of
// an instance, or of its ranks and driver for [signal.NoInstance]. A step that is lower than the one
// before counts, too, and one that is reported again does not.
func (m *Monitor) CountChanges(instance, generation int) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.own.changesOf(instance, generation)
}

// NodesWithSteps returns the nodes of which steps of a generation of an instance are known, given the
// newest listing of [signal.NodesDir]. The head publishes none of its own.
func (m *Monitor) NodesWithSteps(l signal.Listing, instance, generation int) (nodes []int) {
	for _, step := range l.NodeSteps() {
		if step.Instance == instance && step.Generation == generation {
			nodes = append(nodes, step.Node)
		}
	}
	if m.CountChanges(instance, generation) > 0 {
		nodes = append(nodes, m.nodeIndex)
	}
	return nodes
}

// Summary returns the progress of the job, as the head knows it. It returns nil if there is none to
// report.
func (m *Monitor) Summary() *record.Progress {
	if store := m.store.Load(); store != nil && store.Nodes != nil {
		m.addListing(store.Nodes.LastListing())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.job.account.Summary(time.Since(m.jobStart))
	if p.Reports == 0 {
		return nil
	}
	if slowest, median, count := m.job.findSlowest(m.own.list(m.nodeIndex)); count > 1 {
		p.Slowest = &record.SlowestRank{Rank: slowest.Rank, NodeIndex: slowest.Node, Step: slowest.Step,
			Median: median, Count: count}
		if slowest.Instance != signal.NoInstance && m.worlds != nil {
			p.Slowest.World = m.worlds(slowest.Instance)
		}
	}
	return &p
}
