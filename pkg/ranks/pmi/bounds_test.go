package pmi

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNames verifies that a job's name contains a readable part, and 192 secret bits that are not
// shown.
func TestNames(t *testing.T) {
	var secret [24]byte
	for i := range secret {
		secret[i] = byte(i)
	}
	const hidden = "000102030405060708090a0b0c0d0e0f1011121314151617"
	name := NewJobName("bringupd-53.0", secret)
	if name != "bringupd-53.0."+hidden {
		t.Errorf("the name is %s", name)
	}
	spawned := spawnedJobName(name, 7)
	if spawned != "bringupd-53.0-7."+hidden {
		t.Errorf("the spawned job's name is %s", spawned)
	}
	for full, shown := range map[string]string{name: "bringupd-53.0", spawned: "bringupd-53.0-7", "w": "w"} {
		if got := PublicName(full); got != shown {
			t.Errorf("%s is shown as %s", full, got)
		}
	}
	if got := (ProcID{spawned, 3}).String(); got != "bringupd-53.0-7.3" {
		t.Errorf("a process is shown as %s", got)
	}
	if long := spawnedJobName(NewJobName(strings.Repeat("x", 300), secret), math.MaxInt32); len(long) > 255 {
		t.Errorf("PMIx accepts no name of %d bytes", len(long))
	}
}

// TestSpawnIsBounded verifies that a request that cannot be placed is refused at once, however
// large it is.
func TestSpawnIsBounded(t *testing.T) {
	m := raise(t, 2, 1, 4)
	m.head.cfg.Oversubscribe = true
	spawn := func(commands ...Command) error {
		_, err := m.nodes[0].SpawnJob(t.Context(), SpawnRequest{Requester: ProcID{"w", 0}, Commands: commands})
		return err
	}
	began := time.Now()
	fails(t, spawn(Command{Argv: []string{"a"}, Ranks: math.MaxInt32}), NoSpace,
		"cannot place 2147483647 ranks: at most 1048576 are accepted")
	fails(t, spawn(Command{Argv: []string{"a"}, Ranks: -1}), BadParam, "cannot place -1 ranks")
	fails(t, spawn(Command{Argv: []string{"a"}, Ranks: MaxRanks}), NoSpace,
		"cannot spawn: the run would have 1048577 ranks")
	fails(t, spawn(slices.Repeat([]Command{{Argv: []string{"a"}, Ranks: 1}}, MaxCommands+1)...),
		NoSpace, "at most 4096 are accepted")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("that took %s", took)
	}
	if err := spawn(Command{Argv: []string{"a"}, Ranks: 9}); err != nil {
		t.Errorf("the slots of refused spawns are gone: %v", err)
	}
}

// TestShare verifies that the shares equal those of a distribution slot by slot.
func TestShare(t *testing.T) {
	for range 2000 {
		free := make([]int, 1+rand.IntN(6))
		for i := range free {
			free[i] = rand.IntN(9) - 3
		}
		n := rand.IntN(30)
		want, left := make([]int, len(free)), slices.Clone(free)
		for range n {
			best := slices.Index(left, slices.Max(left))
			left[best]--
			want[best]++
		}
		if got := shareRanks(n, free); !slices.Equal(got, want) {
			t.Fatalf("of %d ranks %v free slots get %v, want %v", n, free, got, want)
		}
	}
}

// TestPublishIsBounded verifies that published data is bounded, in entries and in bytes, and that
// the space is free again after entries are unpublished.
func TestPublishIsBounded(t *testing.T) {
	m := raise(t, 1, 1, 1)
	by := ProcID{"w", 0}
	large := make([]byte, maxPublishedSize)
	fails(t, m.head.publishEntries([]Entry{{Key: "k", Publisher: by, Value: large}}), NoSpace,
		"cannot publish: at most 65536 entries of 64 MiB")
	for range 3 {
		if err := m.head.publishEntries([]Entry{{Key: "k", Publisher: by, Value: large[1:]}}); err != nil {
			t.Fatal(err)
		}
		fails(t, m.head.publishEntries([]Entry{{Key: "j", Publisher: by, Value: []byte("1")}}), NoSpace, "")
		m.head.unpublishEntries(by, nil)
	}
	fails(t, m.head.publishEntries(make([]Entry, maxPublished+1)), NoSpace, "")
}

// TestGroupIsBounded verifies that a fence that names the same job many times needs no more work
// than one that names it once.
func TestGroupIsBounded(t *testing.T) {
	m := raise(t, 1, 1, 1)
	job := &Job{Name: "large", Hosts: []string{"n0"}, Nodes: make([]int, 1<<18)}
	m.nodes[0].jobs[job.Name] = job
	began := time.Now()
	group, err := m.nodes[0].resolveGroup(slices.Repeat([]ProcID{{"large", AllRanks}, {"large", 7}}, 1<<18))
	if err != nil || group.Ranks != "0-262143" || len(group.Local) != 1<<18 {
		t.Errorf("%d local ranks, %v", len(group.Local), err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("that took %s", took)
	}
}
