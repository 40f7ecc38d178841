package health

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// began is when the observer's clock starts in these tests.
var began = time.Now()

// at is a time of the observer's, in milliseconds.
func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

// observed is a failure that rank has recorded and the observer has seen at ms.
func observed(kind Kind, rank, ms int) Observed {
	record := signal.FailedRecord{Kind: string(kind), What: fmt.Sprintf("%s on %d at %d ms", kind, rank, ms)}
	record.Rank, record.Host = rank, hostOf(rank)
	return Observed{FailedRecord: record, At: at(ms)}
}

// missing is the loss of ranks that rank by has recorded.
func missing(kind Kind, by, ms int, ranks ...int) Observed {
	o := observed(kind, by, ms)
	o.Lost = ranks
	return o
}

func lost(by, ms int, ranks ...int) Observed { return missing(PeerLost, by, ms, ranks...) }

// aged is a failure that had happened as many ms before its record was written.
func aged(ms int, o Observed) Observed {
	o.Age = time.Duration(ms) * time.Millisecond
	return o
}

func hostOf(rank int) string { return fmt.Sprintf("n%d", rank) }

func shuffled(random *rand.Rand, failures []Observed) []Observed {
	other := slices.Clone(failures)
	random.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	return other
}

// decision is a verdict that is wanted.
type decision struct {
	name     string
	failures []Observed // the cause first, then the others by blame
	code     int
	bad      []string
}

func TestDecide(t *testing.T) {
	for _, tc := range slices.Concat([]decision{
		{"one cause", []Observed{observed(ServiceDied, 2, 5)}, 77, nil},
		{"one consequence", []Observed{lost(0, 5, 3)}, 76, []string{"n3"}},
		{"a cause seen after its consequences", []Observed{
			observed(ServiceDied, 7, 9), observed(Deadline, 4, 1), observed(Terminated, 1, 2), observed(Aborted, 3, 1), lost(0, 3, 7),
		}, 77, nil},
		{"a check that failed outranks the end that srun made of it", []Observed{observed(Check, 5, 4), observed(Terminated, 0, 3)}, 75, []string{"n5"}},
		{"an internal error is a cause", []Observed{observed(Internal, 1, 8), lost(0, 2, 2)}, 70, nil},
		{"of two causes the one that happened earlier", []Observed{observed(Setup, 9, 3), observed(Check, 1, 4)}, 77, []string{"n1"}},
		{"of two causes the one that happened earlier, though it was told later", []Observed{
			aged(700, observed(ServiceDied, 9, 900)), observed(Check, 1, 300),
		}, 77, []string{"n1"}},
		{"of two causes of one moment the lower rank", []Observed{observed(Check, 2, 3), observed(Check, 10, 3)}, 75, []string{"n2", "n10"}},
		{"of two causes of one rank and moment, always the same", []Observed{observed(SandboxDied, 1, 3), observed(ServiceDied, 1, 3)}, 77, nil},
		{"the job's time is up, and a service had died", []Observed{observed(ServiceDied, 3, 6), observed(TimeUp, 0, 7)}, 77, nil},
		{"the job's time is up, and then it is told to end", []Observed{observed(TimeUp, 0, 7), observed(Terminated, 3, 9)}, 124, nil},
		{"a deadline before a lost peer", []Observed{observed(Deadline, 0, 7), lost(0, 6, 2)}, 124, nil},
		{"a peer was lost, and srun ended the rest", []Observed{lost(0, 5, 2, 3), observed(Terminated, 0, 6), observed(Terminated, 1, 6)}, 76, []string{"n2", "n3"}},
		{"the job was cancelled, and peers went", []Observed{observed(Terminated, 0, 5), lost(0, 6, 2)}, 143, nil},
		{"interrupted", []Observed{observed(Interrupted, 0, 5), lost(0, 5, 2), observed(Aborted, 1, 4)}, 130, nil},
		{"aborts alone", []Observed{observed(Aborted, 2, 4), observed(Aborted, 3, 4)}, 76, nil},
		{"a kind of a later version", []Observed{observed("flooded", 2, 4), lost(0, 3, 3)}, 70, nil},

		{"a daemon was killed", []Observed{missing(DaemonDied, 0, 5, 3)}, 76, []string{"n3"}},
		{"a daemon was killed, and a service elsewhere missed it", []Observed{missing(DaemonDied, 0, 5, 3), observed(ServiceDied, 6, 30)}, 76, []string{"n3"}},
		{"a service died, and later a daemon elsewhere", []Observed{observed(ServiceDied, 6, 5), missing(DaemonDied, 0, 30, 3)}, 77, nil},
		{"a service died before a daemon elsewhere, and was told after it", []Observed{
			aged(100, observed(ServiceDied, 6, 90)), missing(DaemonDied, 0, 30, 3),
		}, 77, nil},
		{"a host was lost long before that was known, and services missed it at once", []Observed{
			aged(10_000, missing(HostLost, 0, 12_000, 3)), observed(ServiceDied, 6, 5000), observed(ServiceDied, 7, 5001),
		}, 76, []string{"n3"}},
		{"a daemon told why it ends, and went", []Observed{observed(Share, 3, 40), missing(DaemonDied, 0, 30, 3)}, 66, nil},
		{"a daemon told that its service died, and was killed", []Observed{observed(ServiceDied, 3, 50), missing(DaemonDied, 0, 1, 3)}, 77, nil},
		{"a launcher ended daemons, which went", []Observed{
			observed(Terminated, 0, 5), observed(Terminated, 3, 6), missing(DaemonDied, 0, 4, 3),
		}, 143, nil},
		{"a daemon was killed, and the launcher ended the others, which went", []Observed{
			missing(DaemonDied, 0, 9, 2), observed(Terminated, 3, 5), observed(Terminated, 4, 6), missing(DaemonDied, 0, 7, 3, 4),
		}, 76, []string{"n2"}},
		{"one of two that are lost has told why", []Observed{missing(HostLost, 0, 30, 3, 4), observed(ServiceDied, 4, 40)}, 76, []string{"n3", "n4"}},
		{"a rack was lost", []Observed{missing(HostLost, 0, 30, 3), missing(HostHangs, 0, 31, 4, 3), observed(ServiceDied, 5, 32)}, 76, []string{"n3", "n4"}},
		{"a GPU that has failed speaks against its node, and before what died of it", []Observed{observed(GPUFailed, 5, 1), observed(ServiceDied, 2, 3)}, 75, []string{"n5"}},
		{"a GPU that has failed speaks against its node after what died of it, too", []Observed{
			observed(ServiceDied, 5, 1), observed(GPUFailed, 5, 3), lost(0, 6, 4),
		}, 77, []string{"n5"}},
		{"a GPU that is fit for another job speaks against none", []Observed{
			reported(`{"next":"fit"}`, observed(GPUFailed, 5, 1)), reported(`{"next":"unfit"}`, observed(GPUFailed, 4, 3)),
		}, 75, []string{"n4"}},
		{"nodes that differ are told of by the head", []Observed{missing(NodesDiffer, 0, 1, 3, 4)}, 75, []string{"n3", "n4"}},
		{"where as many nodes are of one kind as of another, none is odd, nor the head that tells", []Observed{observed(NodesDiffer, 0, 1)}, 75, nil},
		{"what another node would not pass speaks against none", []Observed{observed(CheckUser, 5, 1)}, 65, nil},
		{"a node failed its check and another was lost", []Observed{observed(Check, 5, 1), missing(HostLost, 0, 30, 3)}, 75, []string{"n5", "n3"}},
		{"a node is cut off and says so", []Observed{observed(CutOff, 3, 50), missing(HostLost, 3, 20, 0), missing(HostLost, 0, 30, 3)}, 76, []string{"n3"}},
		{"the head is cut off, and everybody misses it", []Observed{
			missing(CutOff, 0, 50, 1, 2, 3), missing(HostLost, 1, 20, 0), missing(HostLost, 2, 21, 0), missing(HostLost, 0, 30, 1, 2, 3),
		}, 76, []string{"n0"}},
		{"who is missed by the head misses the head", []Observed{missing(HostLost, 0, 30, 3), missing(HostLost, 3, 20, 0)}, 76, []string{"n3"}},
		{"what is only silent yields to what a kernel has told", []Observed{missing(DaemonDied, 0, 30, 3), lost(0, 1, 4)}, 76, []string{"n3"}},
	}, decisionsOnRanks) {
		t.Run(tc.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			for range 50 {
				failures := shuffled(random, tc.failures)
				given := slices.Clone(failures)
				v := Decide(failures, hostOf)
				if v.Code != tc.code || !slices.Equal(v.BadNodes, tc.bad) || v.Outcome != OutcomeBy(v.Cause) {
					t.Fatalf("got %+v, bad nodes %v: %s", v.Outcome, v.BadNodes, v.Cause.What)
				}
				for i, record := range records(v) {
					if !reflect.DeepEqual(record, tc.failures[i].FailedRecord) {
						t.Fatalf("place %d: got %q, want %q", i, record.What, tc.failures[i].What)
					}
				}
				if !reflect.DeepEqual(failures, given) {
					t.Fatal("the caller's slice was changed")
				}
			}
		})
	}
}

// reported is a failure with pkg/gpu's event.
func reported(event string, of Observed) Observed {
	of.Report = json.RawMessage(event)
	return of
}

// records are all that a verdict tells of, in its order.
func records(v Verdict) []signal.FailedRecord {
	return append([]signal.FailedRecord{v.Cause}, v.Consequences...)
}

// draw makes up to nine failures of a job of five nodes, of any kinds, within a
// moment or two.
func draw(random *rand.Rand, all []Kind) []Observed {
	var failures []Observed
	for range 1 + random.IntN(9) {
		o := observed(all[random.IntN(len(all))], random.IntN(5), random.IntN(6))
		if Loss(Kind(o.Kind)) {
			for range random.IntN(3) {
				o.Lost = append(o.Lost, random.IntN(5))
			}
		}
		if ofRank(Kind(o.Kind)) {
			o = drawRank(random, o)
		}
		failures = append(failures, aged(random.IntN(3), o))
	}
	return failures
}

// Whatever failed, in whatever order it was seen and is told: the verdict is
// one, no consequence is it where there is a cause, and nothing is forgotten.
func TestDecideProperty(t *testing.T) {
	all := kinds(t)
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		failures := draw(random, all)
		first := Decide(failures, hostOf)
		known := hear(failures)
		nearest := outermost
		for _, o := range failures {
			nearest = min(nearest, known.remoteness(o))
		}
		if nearest == outermost {
			t.Errorf("seed %d: %v: each explains another", seed, failures)
		}
		at := slices.IndexFunc(failures, func(o Observed) bool { return reflect.DeepEqual(o.FailedRecord, first.Cause) })
		if got := known.remoteness(failures[at]); got != nearest {
			t.Errorf("seed %d: the verdict on %v is %s", seed, failures, first.Cause.What)
		}
		if told := len(records(first)); told != len(failures) {
			t.Errorf("seed %d: %d failures are told of, and there are %d", seed, told, len(failures))
		}
		for range 10 {
			if again := Decide(shuffled(random, failures), hostOf); !reflect.DeepEqual(again, first) {
				t.Fatalf("seed %d: another order, another verdict: %+v, %+v", seed, again, first)
			}
		}
	}
}

// A clock that the observer's begins at another time, or that runs in another
// zone, changes nothing.
func TestDecideKnowsNoDate(t *testing.T) {
	all := kinds(t)
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 3))
		failures := draw(random, all)
		first := Decide(failures, hostOf)
		by := time.Duration(random.Int64N(int64(time.Hour)))
		for i := range failures {
			failures[i].At = failures[i].At.Add(by)
			failures[i].FailedRecord.At = began.Add(time.Duration(random.Int64())) // the writers' clocks are anything
		}
		later := Decide(failures, hostOf)
		if later.Cause.What != first.Cause.What || !slices.Equal(later.BadNodes, first.BadNodes) {
			t.Fatalf("seed %d: by %v later it is %s, not %s", seed, by, later.Cause.What, first.Cause.What)
		}
	}
}

// What follows from a cause, and comes later, never hides it: what dies on
// other nodes, losses, deadlines, aborts, and the end that a launcher makes.
func TestDecideKeepsTheCause(t *testing.T) {
	const victim, killed = 3, 4
	causes := []Observed{
		observed(ServiceDied, victim, 5), observed(SandboxDied, victim, 5), observed(Check, victim, 5), observed(Share, victim, 5),
		observed(CutOff, victim, 5), missing(DaemonDied, 0, 5, killed), missing(HostLost, 0, 5, killed), missing(HostHangs, 0, 5, killed),
	}
	for _, cause := range causes {
		t.Run(cause.Kind, func(t *testing.T) {
			for seed := range uint64(300) {
				random := rand.New(rand.NewPCG(seed, 1))
				failures := []Observed{cause}
				for range random.IntN(12) {
					later := 6 + random.IntN(50)
					others := []int{1, 2, 5}
					failures = append(failures, []Observed{
						observed(ServiceDied, others[random.IntN(3)], later),
						missing(DaemonDied, 0, later, 1+random.IntN(2)),
						missing(DaemonDied, 0, 1, victim), // seen before the record was read
						lost(2, later, 0),
						observed(Deadline, 1, random.IntN(50)),
						observed(Terminated, random.IntN(3), random.IntN(50)),
						observed(Aborted, 5, random.IntN(50)),
					}[random.IntN(7)])
					if Loss(Kind(cause.Kind)) && cause.Rank == 0 { // then the other is no victim
						failures = slices.DeleteFunc(failures, func(o Observed) bool { return slices.Contains(o.Lost, victim) })
					}
				}
				if v := Decide(shuffled(random, failures), hostOf); v.Cause.What != cause.What {
					t.Fatalf("seed %d: %s hides %s", seed, v.Cause.What, cause.What)
				}
			}
		})
	}
}

func TestDecideOnNothing(t *testing.T) {
	if v := Decide(nil, hostOf); v.Code != 70 || v.Cause.What == "" || v.Consequences != nil || v.BadNodes != nil {
		t.Errorf("got %+v", v)
	}
}

func TestRemotenessNamesConsequences(t *testing.T) {
	consequences := []Kind{Deadline, TimeUp, Terminated, PeerLost, Aborted}
	for _, kind := range kinds(t) {
		if got := remoteness(kind) > 0; got != slices.Contains(consequences, kind) {
			t.Errorf("%s is a consequence: %t", kind, got)
		}
	}
}

func TestLoss(t *testing.T) {
	losses := []Kind{DaemonDied, HostLost, HostHangs, CutOff, PeerLost, NotBack}
	for _, kind := range kinds(t) {
		if got := Loss(kind); got != slices.Contains(losses, kind) {
			t.Errorf("%s is a loss: %t", kind, got)
		}
	}
}

// Where the launcher tells no hosts, those of the lost are known when the result is written.
func TestWithAccused(t *testing.T) {
	lost := signal.FailedRecord{Kind: string(DaemonDied), Lost: []int{1, 2, 3}}
	unknown := func(rank int) string { return map[int]string{1: "n1", 2: "n2"}[rank] }
	for _, tc := range []struct {
		name  string
		nodes []string
		cause *signal.FailedRecord
		want  []string
	}{
		{"no cause", []string{"a"}, nil, []string{"a"}},
		{"of the lost, those that are known", nil, &lost, []string{"n1", "n2"}},
		{"each once", []string{"n2"}, &lost, []string{"n2", "n1"}},
		{"a service speaks against none", nil, &signal.FailedRecord{Kind: string(ServiceDied), Lost: []int{1}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := WithAccused(tc.nodes, tc.cause, unknown); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
