package world

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/mpidetect"
	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// here returns the first node of a world with this number of ranks and slots per node.
func here(t *testing.T, hosts []string, perNode, slots int) *Node {
	t.Helper()
	local, all := make([]int, len(hosts)), make([]int, len(hosts))
	for node := range hosts {
		local[node], all[node] = perNode, slots
	}
	self := new(deps.Config)
	self.Identity.Host = hosts[0]
	n := &Node{plan: ranks.NewPlan(local), cfg: Config{NodeConfig: NodeConfig{Config: self, Log: zap.NewNop()},
		ID: ID{JobName: "j"}, Placement: &Placement{PerNode: local, Hosts: hosts, Slots: all}}}
	n.mpiServers = newMPIServers(n)
	return n
}

func TestJobOf(t *testing.T) {
	for name, tc := range map[string]struct {
		hosts    []string
		slots    int
		universe int
		names    []string
	}{
		"slots for more":       {[]string{"n0", "n1"}, 4, 8, []string{"n0", "n1"}},
		"slots for fewer":      {[]string{"n0", "n1"}, 1, 4, []string{"n0", "n1"}},
		"several nodes a host": {[]string{"vm", "n1", "vm"}, 2, 6, []string{"vm", "n1", "vm-2"}},
	} {
		n := here(t, tc.hosts, 2, tc.slots)
		job := InitialJob(n.plan, n.cfg.Placement, "j")
		if job.UniverseSize != tc.universe || !reflect.DeepEqual(job.Hosts, tc.names) ||
			len(job.Nodes) != 2*len(tc.hosts) {
			t.Errorf("%s: %+v", name, job)
		}
	}
}

// TestSlotsAreTakenAndGivenBack verifies that a rank with a slot is bound to it alone, and that the
// slot is free for another rank after its end.
func TestSlotsAreTakenAndGivenBack(t *testing.T) {
	n := here(t, []string{"n0"}, 1, 3)
	taken := func(want ...int) {
		t.Helper()
		if !reflect.DeepEqual(n.slotOwners, want) {
			t.Fatalf("taken are %d, not %d", n.slotOwners, want)
		}
	}
	crew := func(numbers ...int) *ranks.LocalRanks {
		var local []ranks.Rank
		for _, number := range numbers {
			local = append(local, ranks.Rank{Rank: number})
		}
		n.assignSlots(local, numbers[0] > 0)
		return &ranks.LocalRanks{Ranks: local}
	}
	crew(0)
	taken(0, -1, -1)
	first := crew(1, 2)
	taken(0, 1, 2)
	crew(3) // no slot is free, so the rank is not bound
	taken(0, 1, 2)
	n.freeSlots(first, "first")
	taken(0, -1, -1)
	crew(4)
	taken(0, 4, -1)
}

func TestSpawnedFits(t *testing.T) {
	job := &pmi.Job{Name: "s", FirstNumber: 4, Nodes: []int{0, 0, 0}, Apps: []int{0, 1, 1}}
	s := &spawnedJob{job, pmi.SpawnRequest{Commands: []pmi.Command{{Argv: []string{"a"}},
		{Argv: []string{"b", "-v"}, Dir: "/w", Env: []string{"K=v"}}}}}
	fit := ranks.RankSpec{Argv: []string{"driver"}}
	s.applyCommand(&fit, ranks.Rank{Rank: 5})
	if want := (ranks.RankSpec{Argv: []string{"b", "-v"}, Dir: "/w",
		Env: []string{"K=v"}}); !reflect.DeepEqual(fit, want) {
		t.Errorf("it is given %+v, not %+v", fit, want)
	}
	if got := s.procOf(ranks.Rank{Rank: 5}, "world"); got != (pmi.ProcID{Job: "s", Rank: 1}) {
		t.Errorf("it is %v", got)
	}
	if got := (*spawnedJob)(nil).procOf(ranks.Rank{Rank: 5}, "world"); got != (pmi.ProcID{Job: "world", Rank: 5}) {
		t.Errorf("one of the run is %v", got)
	}
}

// TestLone verifies that a rank that has loaded an MPI library and does not connect is reported
// after four seconds, once for all ranks of the node, and that a rank that has connected is never
// reported.
func TestLone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said, logs := observer.New(zap.WarnLevel)
		n := here(t, []string{"n0", "n1"}, 2, 2)
		n.cfg.Log = zap.New(said)
		l := n.singletons
		found := map[int]*mpidetect.LoadedMPI{11: {MPIs: []string{"/opt/mpi/lib/libmpi.so.12"}}}
		l.loadedMPI = func(pid int) *mpidetect.LoadedMPI { return found[pid] }
		at := func(rank, pid int) bool { return l.inspectRank(context.Background(), rank, pid) }
		if at(0, 10) || at(1, 11) || l.hasSilentRanks() != true {
			t.Error("it is told at once, or not looked at again")
		}
		time.Sleep(silentTimeout - time.Second)
		if at(1, 11) {
			t.Error("it is told early")
		}
		time.Sleep(time.Second)
		if told, again := at(1, 11), at(1, 11); !told || !again || logs.Len() != 1 {
			t.Fatalf("it is told %d times: %v", logs.Len(), logs.All())
		}
		for _, want := range []string{"rank 1 on n0 has an MPI loaded ",
			"(/opt/mpi/lib/libmpi.so.12)", "for 4.00 s", "it is a world of 1, not of 4",
			"the likely reason: ", "to fix it: "} {
			if got := logs.All()[0].Message; !strings.Contains(got, want) {
				t.Errorf("%q lacks %q", got, want)
			}
		}
	})
}

func TestInspectedRanks(t *testing.T) {
	running := []stackdump.RankProcess{{Rank: 6, PID: 16}, {Rank: 4, PID: 14}, {Rank: 5, PID: 15}}
	for _, tc := range []struct {
		running []stackdump.RankProcess
		age     time.Duration
		want    []stackdump.RankProcess
	}{
		{running, minInspectInterval, []stackdump.RankProcess{{Rank: 4, PID: 14}}},
		{running, allInspectedFrom, running},
		{nil, minInspectInterval, nil},
	} {
		if got := inspectedRanks(tc.running, tc.age); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("after %s they are %v", tc.age, got)
		}
	}
}

// TestLoneEnds verifies that a program with an MPI library that ends before it is reported is
// reported at its end.
func TestLoneEnds(t *testing.T) {
	said, logs := observer.New(zap.WarnLevel)
	n := here(t, []string{"n0"}, 2, 2)
	n.cfg.Log = zap.New(said)
	l := n.singletons
	l.loadedMPI = func(int) *mpidetect.LoadedMPI {
		return &mpidetect.LoadedMPI{MPIs: []string{"/opt/mpi/lib/libmpi.so.12"}}
	}
	l.checkEndedRank(pmi.ProcID{Job: "j", Rank: 0})
	l.inspectRank(context.Background(), 1, 11)
	l.checkEndedRank(pmi.ProcID{Job: "another", Rank: 1})
	if logs.Len() != 0 {
		t.Errorf("it is told of those that had no MPI, or are of another job: %v", logs.All())
	}
	// The rank may contact its server meanwhile, which removes its record.
	seen := l.silentRanks[1].LoadedMPI
	delete(l.silentRanks, 1)
	l.warnOnce(pmi.ProcID{Job: "j", Rank: 1}, seen, "to its end")
	if logs.Len() != 1 || !strings.Contains(logs.All()[0].Message, "to its end") {
		t.Errorf("told is %v", logs.All())
	}
}

// TestHints verifies that Open MPI's ranks yield if there are more ranks than cores, and do not use
// shared memory if daemons share a machine.
func TestHints(t *testing.T) {
	n := here(t, []string{"n0"}, 2, 2)
	if got := n.openMPIHints(64); !reflect.DeepEqual(got, map[string]string{"JSM_JSRUN_PORT": "1"}) {
		t.Errorf("where nothing is known of cores: %q", got)
	}
	n.cfg.Identity.LocalSize = 2
	n.cfg.Layout = affinity.Node{CPUs: affinity.IDSet{0, 1},
		Cores: []affinity.Core{{CPUs: affinity.IDSet{0}}, {CPUs: affinity.IDSet{1}}}}
	if got, want := n.openMPIHints(3), map[string]string{"JSM_JSRUN_PORT": "1",
		"OMPI_MCA_btl": "^vader", "OMPI_MCA_mpi_yield_when_idle": "1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("with more ranks than cores: %q, not %q", got, want)
	}
	if got := n.openMPIHints(2); got["OMPI_MCA_mpi_yield_when_idle"] != "" {
		t.Errorf("with as many: %q", got)
	}
}

// TestIDs verifies that the worlds of a run have different names for MPI and different keys, and that
// a key is read back.
func TestIDs(t *testing.T) {
	seen := make(map[string]bool)
	for _, id := range []ID{
		RunID("j", "nonce"), GenerationID("j", "nonce", "a.0", 1, 0),
		GenerationID("j", "nonce", "a.0", 1, 1), GenerationID("j", "nonce", "a.1", 11, 1),
	} {
		if seen[id.Key] || seen[id.JobName] {
			t.Errorf("%+v is not unique", id)
		}
		seen[id.Key], seen[id.JobName] = true, true
	}
	if number, generation, ok := ParseGenerationKey(GenerationKey(42, 7)); number != 42 || generation != 7 || !ok {
		t.Errorf("it is read back as %d, %d, %v", number, generation, ok)
	}
	for _, wrong := range []string{"", "1", "1.", ".1", "1.2.3", "01.2", "1.2 ", "a.b"} {
		if _, _, ok := ParseGenerationKey(wrong); ok {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
