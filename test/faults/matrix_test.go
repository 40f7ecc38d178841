package faults

import (
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	driversCode = 42
	// dwell is how long a driver runs under a fault that it must not notice. It is longer than the
	// silence after which a peer is lost.
	dwell = peerTimeout
)

// TestMatrix breaks the mounts of a job in each of its phases and checks the outcome.
func TestMatrix(t *testing.T) {
	results := newResults("matrix", []string{"fault", "where"}, phases)
	t.Run("cells", func(t *testing.T) {
		for _, r := range rows() {
			for _, phase := range phases {
				t.Run(slug(r.title())+"/"+phase, func(t *testing.T) {
					t.Parallel()
					results.note(r.title(), phase, cell(t, r, phase))
				})
			}
		}
	})
	results.settle(t, titles(rows()))
}

func titles(rows []row) (all []string) {
	for _, r := range rows {
		all = append(all, r.title())
	}
	return all
}

// cell runs a job, injects the fault of a row in a phase, and checks the outcome.
func cell(t *testing.T, r row, phase string) outcome {
	first := r.before
	if phase == join {
		first = r.after
	}
	j := newJob(t, first)
	at := slices.Index(phases, phase)
	begin := time.Now()
	j.start(driversCode)
	for _, p := range phases[:at] {
		if p == driver {
			j.await(workers) // a service without a trap yet would not report its signal
		}
		j.free(p)
	}
	if phase != join {
		j.await(phase)
		j.shows(before(phase)...)
		begin = time.Now()
		j.turn(r)
	}
	j.endTurn()
	j.releaseAfter(r)
	for _, p := range phases[at:] {
		if p == driver && phase == driver {
			if r.endsDriver() {
				continue
			}
			time.Sleep(dwell)
		}
		j.free(p)
	}
	o := j.outcome(begin)
	o.shared = r.where == atAll
	if r.survived(phase) {
		j.endedWell(o, driversCode)
	} else {
		j.endedBy(o, r, phase)
	}
	if r.harmless {
		j.hasResult(o)
	}
	j.nothingLeft()
	j.checkRecords()
	return o
}

// before returns the names that exist before a phase begins. Waiting for them makes it
// deterministic which records are published before the mounts are broken.
func before(phase string) (names []string) {
	node := func(state record.State) {
		for node := range size {
			names = append(names,
				filepath.Join(signal.NodesDir, signal.NodeName(node, size, state)))
		}
	}
	control := func(name string) { names = append(names, filepath.Join(signal.ControlDir, name)) }
	for _, passed := range phases[:slices.Index(phases, phase)] {
		switch passed {
		case join:
			node(record.StateJoined)
		case check:
			node(record.StateChecked + "*") // the name contains the kind of node
		case sandbox:
			node(record.StateSandboxReady)
		case head:
			control(signal.NameHead)
		case workers:
			node(record.StateServiceUp)
			control(signal.NameGateOpen)
			names = append(names, pulses()...)
		case driver:
			control(signal.NameOrderlyEnd)
		}
	}
	return names
}

// pulses returns the patterns of all heartbeat files.
func pulses() []string {
	names := []string{filepath.Join(signal.ControlDir,
		signal.NodeName(0, size, record.StateHeartbeat)+".*")}
	for node := 1; node < size; node++ {
		names = append(names,
			filepath.Join(signal.NodesDir, signal.NodeName(node, size, record.StateHeartbeat)+".*"))
	}
	return names
}

// turn injects the faults of a row.
func (j *job) turn(r row) {
	j.t.Helper()
	for _, node := range r.where.nodes() {
		j.must(j.mounts[node].Set(r.after(node)))
	}
}

// releaseAfter ends a temporary stall after its duration.
func (j *job) releaseAfter(r row) {
	j.t.Helper()
	if r.release > 0 {
		time.Sleep(r.release)
		j.release()
	}
}

// release ends all stalls.
func (j *job) release() {
	j.t.Helper()
	for node, m := range j.mounts {
		if err := m.Release(); err != nil {
			j.t.Fatalf("the mount of node %s: %v", strconv.Itoa(node), err)
		}
	}
}
