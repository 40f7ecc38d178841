package health

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
)

func observed(kind Kind, rank, look int) Observed {
	record := signal.FailedRecord{Kind: string(kind), What: fmt.Sprintf("%s on %d at look %d", kind, rank, look)}
	record.Rank, record.Host = rank, hostOf(rank)
	return Observed{FailedRecord: record, Look: look}
}

func lost(by, look int, ranks ...int) Observed {
	o := observed(PeerLost, by, look)
	o.Lost = ranks
	return o
}

func hostOf(rank int) string { return fmt.Sprintf("n%d", rank) }

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		name     string
		failures []Observed // the cause first, then the others by blame
		code     int
		bad      []string
	}{
		{"one cause", []Observed{observed(ServiceDied, 2, 5)}, 77, nil},
		{"one consequence", []Observed{lost(0, 5, 3)}, 76, []string{"n3"}},
		{"a cause seen after its consequences", []Observed{
			observed(ServiceDied, 7, 9), observed(Deadline, 4, 1), observed(Terminated, 0, 2), lost(0, 3, 7), observed(Aborted, 3, 1),
		}, 77, nil},
		{"a check that failed outranks the end that srun made of it", []Observed{observed(Check, 5, 4), observed(Terminated, 0, 3)}, 75, []string{"n5"}},
		{"an internal error is a cause", []Observed{observed(Internal, 1, 8), lost(0, 2, 1)}, 70, nil},
		{"of two causes the one seen earlier", []Observed{observed(Setup, 9, 3), observed(Check, 1, 4)}, 77, nil},
		{"of two causes of one look the lower rank", []Observed{observed(Check, 1, 3), observed(Check, 2, 3)}, 75, []string{"n1"}},
		{"of two causes of one rank and look, always the same", []Observed{observed(SandboxDied, 1, 3), observed(ServiceDied, 1, 3)}, 77, nil},
		{"a deadline before a lost peer", []Observed{observed(Deadline, 0, 7), lost(0, 6, 2)}, 124, nil},
		{"a peer was lost, and srun ended the rest", []Observed{lost(0, 5, 2, 3), observed(Terminated, 0, 6), observed(Terminated, 1, 6)}, 76, []string{"n2", "n3"}},
		{"the job was cancelled, and peers went", []Observed{observed(Terminated, 0, 5), lost(0, 6, 2)}, 143, nil},
		{"interrupted", []Observed{observed(Interrupted, 0, 5), lost(0, 5, 2), observed(Aborted, 1, 4)}, 130, nil},
		{"aborts alone", []Observed{observed(Aborted, 2, 4), observed(Aborted, 3, 4)}, 76, nil},
		{"a kind of a later version", []Observed{observed("flooded", 2, 4), lost(0, 3, 2)}, 70, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 50 {
				shuffled := slices.Clone(tc.failures)
				rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
				given := slices.Clone(shuffled)
				v := Decide(shuffled, hostOf)
				if v.Code != tc.code || !slices.Equal(v.BadNodes, tc.bad) || v.Outcome != OutcomeOf(Kind(v.Cause.Kind)) {
					t.Fatalf("got %+v, bad nodes %v", v.Outcome, v.BadNodes)
				}
				all := append([]signal.FailedRecord{v.Cause}, v.Consequences...)
				for i, record := range all {
					if !reflect.DeepEqual(record, tc.failures[i].FailedRecord) {
						t.Fatalf("place %d: got %q, want %q", i, record.What, tc.failures[i].What)
					}
				}
				if !reflect.DeepEqual(shuffled, given) {
					t.Fatal("the caller's slice was changed")
				}
			}
		})
	}
}

// Whatever failed, in whatever order it was seen and is told: the verdict is
// one, and no consequence is it where there is a cause.
func TestDecideProperty(t *testing.T) {
	all := kinds(t)
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 0))
		var failures []Observed
		cause := false
		for range 1 + random.IntN(8) {
			o := observed(all[random.IntN(len(all))], random.IntN(4), random.IntN(4))
			failures = append(failures, o)
			cause = cause || remoteness(Kind(o.Kind)) == 0
		}
		first := Decide(failures, hostOf)
		if consequence := remoteness(Kind(first.Cause.Kind)) > 0; consequence == cause {
			t.Errorf("seed %d: the verdict on %v is %s", seed, failures, first.Cause.What)
		}
		for range 10 {
			random.Shuffle(len(failures), func(i, j int) { failures[i], failures[j] = failures[j], failures[i] })
			if again := Decide(failures, hostOf); !reflect.DeepEqual(again, first) {
				t.Fatalf("seed %d: another order, another verdict: %+v, %+v", seed, again, first)
			}
		}
	}
}

func TestDecideOnNothing(t *testing.T) {
	if v := Decide(nil, hostOf); v.Code != 70 || v.Cause.What == "" || v.Consequences != nil || v.BadNodes != nil {
		t.Errorf("got %+v", v)
	}
}

func TestRemotenessNamesConsequences(t *testing.T) {
	consequences := []Kind{Deadline, Terminated, PeerLost, Aborted}
	for _, kind := range kinds(t) {
		if got := remoteness(kind) > 0; got != slices.Contains(consequences, kind) {
			t.Errorf("%s is a consequence: %t", kind, got)
		}
	}
}
