package health

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// began is the start of the observer's clock in these tests.
var began = time.Now()

// at returns a time of the observer, in milliseconds.
func at(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

// saw returns a failure that a node has recorded and the observer has seen at ms.
func saw(kind Kind, node, ms int) ObservedFailure {
	rec := record.Failure{Kind: kind, Message: fmt.Sprintf("%s on %d at %d ms", kind, node, ms)}
	rec.NodeIndex, rec.Host = node, hostOf(node)
	return ObservedFailure{Failure: rec, ObservedAt: at(ms)}
}

// misses returns the loss of nodes, recorded by node by.
func misses(kind Kind, by, ms int, nodes ...int) ObservedFailure {
	o := saw(kind, by, ms)
	o.LostNodes = nodes
	return o
}

func lost(by, ms int, nodes ...int) ObservedFailure { return misses(PeerLost, by, ms, nodes...) }

// aged returns a failure that happened ms milliseconds before its record was written.
func aged(ms int, o ObservedFailure) ObservedFailure {
	o.RecordDelay = time.Duration(ms) * time.Millisecond
	return o
}

func hostOf(node int) string { return fmt.Sprintf("n%d", node) }

func shuffled(random *rand.Rand, failures []ObservedFailure) []ObservedFailure {
	other := slices.Clone(failures)
	random.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	return other
}

type facts = []ObservedFailure

// decision is an expected verdict.
type decision struct {
	name     string
	failures []ObservedFailure // the cause first, then the others in order of blame
	code     int
	bad      []string
}

func TestDecide(t *testing.T) {
	for _, tc := range slices.Concat([]decision{
		{"one cause", facts{saw(ServiceDied, 2, 5)}, 77, nil},
		{"one consequence", facts{lost(0, 5, 3)}, 76, []string{"n3"}},
		{"a cause seen after its consequences", facts{
			saw(ServiceDied, 7, 9), saw(DeadlinePassed, 4, 1), saw(Terminated, 1, 2),
			saw(Aborted, 3, 1), lost(0, 3, 7),
		}, 77, nil},
		{"a check that failed before srun's end",
			facts{saw(CheckFailed, 5, 4), saw(Terminated, 0, 3)}, 75, []string{"n5"}},
		{"an internal error is a cause", facts{saw(Internal, 1, 8), lost(0, 2, 2)}, 70, nil},
		{"the earlier of two causes", facts{saw(SetupFailed, 9, 3), saw(CheckFailed, 1, 4)}, 77, []string{"n1"}},
		{"the earlier of two causes, told later", facts{
			aged(700, saw(ServiceDied, 9, 900)), saw(CheckFailed, 1, 300),
		}, 77, []string{"n1"}},
		{"two causes of one moment", facts{saw(CheckFailed, 2, 3),
			saw(CheckFailed, 10, 3)}, 75, []string{"n2", "n10"}},
		{"two causes of one node and moment", facts{saw(SandboxDied, 1, 3), saw(ServiceDied, 1, 3)}, 77, nil},
		{"time is up after a service died", facts{saw(ServiceDied, 3, 6), saw(JobDeadlinePassed, 0, 7)}, 77, nil},
		{"time is up, then told to end", facts{saw(JobDeadlinePassed, 0, 7), saw(Terminated, 3, 9)}, 124, nil},
		{"a deadline before a lost peer", facts{saw(DeadlinePassed, 0, 7), lost(0, 6, 2)}, 124, nil},
		{"a peer was lost, srun ended the rest",
			facts{lost(0, 5, 2, 3), saw(Terminated, 0, 6), saw(Terminated, 1, 6)}, 76, []string{"n2", "n3"}},
		{"the job was cancelled, and peers went", facts{saw(Terminated, 0, 5), lost(0, 6, 2)}, 143, nil},
		{"interrupted", facts{saw(Interrupted, 0, 5), lost(0, 5, 2), saw(Aborted, 1, 4)}, 130, nil},
		{"aborts alone", facts{saw(Aborted, 2, 4), saw(Aborted, 3, 4)}, 76, nil},
		{"a kind of a later version", facts{saw("flooded", 2, 4), lost(0, 3, 3)}, 70, nil},

		{"a daemon was killed", facts{misses(DaemonDied, 0, 5, 3)}, 76, []string{"n3"}},
		{"a daemon killed before a service died",
			facts{misses(DaemonDied, 0, 5, 3), saw(ServiceDied, 6, 30)}, 76, []string{"n3"}},
		{"a service died before a daemon", facts{saw(ServiceDied, 6, 5), misses(DaemonDied, 0, 30, 3)}, 77, nil},
		{"the same, told after it", facts{aged(100, saw(ServiceDied, 6, 90)), misses(DaemonDied, 0, 30, 3)}, 77, nil},
		{"a host lost long before that was known", facts{
			aged(10_000, misses(HostLost, 0, 12_000, 3)), saw(ServiceDied, 6, 5000),
			saw(ServiceDied, 7, 5001),
		}, 76, []string{"n3"}},
		{"a daemon that told why it ends", facts{saw(ShareUnusable, 3, 40), misses(DaemonDied, 0, 30, 3)}, 66, nil},
		{"a daemon whose service died before", facts{saw(ServiceDied, 3, 50), misses(DaemonDied, 0, 1, 3)}, 77, nil},
		{"a launcher ended daemons", facts{
			saw(Terminated, 0, 5), saw(Terminated, 3, 6), misses(DaemonDied, 0, 4, 3),
		}, 143, nil},
		{"a daemon killed, the others ended", facts{
			misses(DaemonDied, 0, 9, 2), saw(Terminated, 3, 5), saw(Terminated, 4, 6),
			misses(DaemonDied, 0, 7, 3, 4),
		}, 76, []string{"n2"}},
		{"one of two lost nodes has told why",
			facts{misses(HostLost, 0, 30, 3, 4), saw(ServiceDied, 4, 40)}, 76, []string{"n3", "n4"}},
		{"a rack was lost", facts{misses(HostLost, 0, 30, 3), misses(HostHangs, 0, 31, 4, 3),
			saw(ServiceDied, 5, 32)}, 76, []string{"n3", "n4"}},
		{"a GPU failed before a service died",
			facts{saw(GPUFailed, 5, 1), saw(ServiceDied, 2, 3)}, 75, []string{"n5"}},
		{"a GPU failed after a service died", facts{
			saw(ServiceDied, 5, 1), saw(GPUFailed, 5, 3), lost(0, 6, 4),
		}, 77, []string{"n5"}},
		{"a GPU that is fit for another job", facts{
			reported(`{"next":"fit"}`, saw(GPUFailed, 5, 1)),
			reported(`{"next":"unfit"}`, saw(GPUFailed, 4, 3)),
		}, 75, []string{"n4"}},
		{"nodes that differ", facts{misses(NodesDiffer, 0, 1, 3, 4)}, 75, []string{"n3", "n4"}},
		{"nodes without a majority", facts{saw(NodesDiffer, 0, 1)}, 75, nil},
		{"what no other node would pass", facts{saw(CheckUser, 5, 1)}, 65, nil},
		{"a failed check and a lost node", facts{saw(CheckFailed, 5, 1),
			misses(HostLost, 0, 30, 3)}, 75, []string{"n5", "n3"}},
		{"a node is cut off", facts{saw(CutOff, 3, 50), misses(HostLost, 3, 20, 0),
			misses(HostLost, 0, 30, 3)}, 76, []string{"n3"}},
		{"the head is cut off", facts{
			misses(CutOff, 0, 50, 1, 2, 3), misses(HostLost, 1, 20, 0),
			misses(HostLost, 2, 21, 0), misses(HostLost, 0, 30, 1, 2, 3),
		}, 76, []string{"n0"}},
		{"the head and a node miss each other",
			facts{misses(HostLost, 0, 30, 3), misses(HostLost, 3, 20, 0)}, 76, []string{"n3"}},
		{"silence beside a reset link", facts{misses(DaemonDied, 0, 30, 3), lost(0, 1, 4)}, 76, []string{"n3"}},
	}, decisionsOnRanks) {
		t.Run(tc.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			for range 50 {
				failures := shuffled(random, tc.failures)
				given := slices.Clone(failures)
				v := DecideVerdict(failures, hostOf)
				if v.Code != tc.code || !slices.Equal(v.BadNodes, tc.bad) || v.Outcome != OutcomeOfCause(v.Cause) {
					t.Fatalf("got %+v, bad nodes %v: %s", v.Outcome, v.BadNodes, v.Cause.Message)
				}
				for i, record := range records(v) {
					if !reflect.DeepEqual(record, tc.failures[i].Failure) {
						t.Fatalf("place %d: got %q, want %q", i, record.Message, tc.failures[i].Message)
					}
				}
				if !reflect.DeepEqual(failures, given) {
					t.Fatal("the caller's slice was changed")
				}
			}
		})
	}
}

// reported returns a failure with an event of pkg/gpu.
func reported(event string, of ObservedFailure) ObservedFailure {
	of.Report = json.RawMessage(event)
	return of
}

// records returns all records of a verdict, in its order.
func records(v Verdict) []record.Failure {
	return append([]record.Failure{v.Cause}, v.Consequences...)
}

// draw returns up to nine failures of any kinds in a job of five nodes, at nearly the same time.
func draw(random *rand.Rand, all []Kind) []ObservedFailure {
	var failures []ObservedFailure
	for range 1 + random.IntN(9) {
		o := saw(all[random.IntN(len(all))], random.IntN(5), random.IntN(6))
		if IsPeerLoss(o.Kind) {
			for range random.IntN(3) {
				o.LostNodes = append(o.LostNodes, random.IntN(5))
			}
		}
		if isRankKind(o.Kind) {
			o = drawRank(random, o)
		}
		failures = append(failures, aged(random.IntN(3), o))
	}
	return failures
}

// TestDecideProperty verifies for any failures, in any order of observation and reporting, that
// there is one verdict, that a consequence is never the verdict if a cause is known, and that no
// failure is lost. A clock with another start changes nothing.
func TestDecideProperty(t *testing.T) {
	all := kinds(t)
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		failures := draw(random, all)
		first := DecideVerdict(failures, hostOf)
		known := collectEvidence(failures)
		nearest := explainedDistance
		for _, o := range failures {
			nearest = min(nearest, known.distanceFromCause(o))
		}
		if nearest == explainedDistance {
			t.Errorf("seed %d: %v: each explains another", seed, failures)
		}
		isCause := func(o ObservedFailure) bool { return reflect.DeepEqual(o.Failure, first.Cause) }
		if got := known.distanceFromCause(failures[slices.IndexFunc(failures, isCause)]); got != nearest {
			t.Errorf("seed %d: the verdict on %v is %s", seed, failures, first.Cause.Message)
		}
		if told := len(records(first)); told != len(failures) {
			t.Errorf("seed %d: %d failures are told of, and there are %d", seed, told, len(failures))
		}
		for range 10 {
			if again := DecideVerdict(shuffled(random, failures), hostOf); !reflect.DeepEqual(again, first) {
				t.Fatalf("seed %d: another order, another verdict: %+v, %+v", seed, again, first)
			}
		}
		by := time.Duration(random.Int64N(int64(time.Hour)))
		for i := range failures {
			failures[i].ObservedAt = failures[i].ObservedAt.Add(by)
			failures[i].WrittenAt = began.Add(time.Duration(random.Int64())) // by arbitrary clocks
		}
		later := DecideVerdict(failures, hostOf)
		if later.Cause.Message != first.Cause.Message || !slices.Equal(later.BadNodes, first.BadNodes) {
			t.Fatalf("seed %d: by %v later it is %s, not %s", seed, by, later.Cause.Message, first.Cause.Message)
		}
	}
}

// TestDecideKeepsTheCause verifies that later consequences never hide the cause: deaths on other
// nodes, losses, deadlines, aborts, and the end that a launcher causes.
func TestDecideKeepsTheCause(t *testing.T) {
	const victim, killed = 3, 4
	causes := facts{
		saw(ServiceDied, victim, 5), saw(SandboxDied, victim, 5), saw(CheckFailed, victim, 5),
		saw(ShareUnusable, victim, 5), saw(CutOff, victim, 5), misses(DaemonDied, 0, 5, killed),
		misses(HostLost, 0, 5, killed), misses(HostHangs, 0, 5, killed),
	}
	for _, cause := range causes {
		t.Run(string(cause.Kind), func(t *testing.T) {
			for seed := range uint64(300) {
				random := rand.New(rand.NewPCG(seed, 1))
				failures := facts{cause}
				for range random.IntN(12) {
					later := 6 + random.IntN(50)
					others := []int{1, 2, 5}
					failures = append(failures, facts{
						saw(ServiceDied, others[random.IntN(3)], later),
						misses(DaemonDied, 0, later, 1+random.IntN(2)),
						misses(DaemonDied, 0, 1, victim), // observed before the record was read
						lost(2, later, 0),
						saw(DeadlinePassed, 1, random.IntN(50)),
						saw(Terminated, random.IntN(3), random.IntN(50)),
						saw(Aborted, 5, random.IntN(50)),
					}[random.IntN(7)])
					if IsPeerLoss(cause.Kind) && cause.NodeIndex == 0 { // the other node is then not a victim
						failures = slices.DeleteFunc(failures,
							func(o ObservedFailure) bool { return slices.Contains(o.LostNodes, victim) })
					}
				}
				if v := DecideVerdict(shuffled(random, failures), hostOf); v.Cause.Message != cause.Message {
					t.Fatalf("seed %d: %s hides %s", seed, v.Cause.Message, cause.Message)
				}
			}
		})
	}
}

func TestDecideOnNothing(t *testing.T) {
	if v := DecideVerdict(nil, hostOf); v.Code != 70 || v.Cause.Message == "" ||
		v.Consequences != nil || v.BadNodes != nil {
		t.Errorf("got %+v", v)
	}
}

func TestClassesOfKinds(t *testing.T) {
	consequences := []Kind{DeadlinePassed, JobDeadlinePassed, Terminated, PeerLost, Aborted}
	losses := []Kind{DaemonDied, HostLost, HostHangs, CutOff, PeerLost, NotReturned}
	for _, kind := range kinds(t) {
		isConsequence, isLoss := causeDistance(kind) > 0, IsPeerLoss(kind)
		if isConsequence != slices.Contains(consequences, kind) || isLoss != slices.Contains(losses, kind) {
			t.Errorf("%s is a consequence: %t, a loss: %t", kind, isConsequence, isLoss)
		}
	}
}

// TestIsIsolation verifies after which causes a run may have ended for a part of its nodes only.
func TestIsIsolation(t *testing.T) {
	for _, tc := range []struct {
		name  string
		cause *record.Failure
		want  bool
	}{
		{"none", nil, false},
		{"a node is cut off", &record.Failure{Kind: CutOff}, true},
		{"the share", &record.Failure{Kind: ShareUnusable}, true},
		{"the head is lost", &record.Failure{Kind: HostLost, LostNodes: []int{0}}, true},
		{"another node is lost", &record.Failure{Kind: HostLost, LostNodes: []int{2, 3}}, false},
		{"a service of the head", &record.Failure{Kind: ServiceDied}, false},
	} {
		if got := IsIsolation(tc.cause); got != tc.want {
			t.Errorf("%s: got %t", tc.name, got)
		}
	}
}

// TestWithAccused verifies that, if the launcher provides no host names, those of lost nodes are
// known when the result is written.
func TestWithAccused(t *testing.T) {
	lost := record.Failure{Kind: DaemonDied, LostNodes: []int{1, 2, 3}}
	unknown := func(node int) string { return map[int]string{1: "n1", 2: "n2"}[node] }
	for _, tc := range []struct {
		name  string
		nodes []string
		cause *record.Failure
		want  []string
	}{
		{"no cause", []string{"a"}, nil, []string{"a"}},
		{"of the lost, those that are known", nil, &lost, []string{"n1", "n2"}},
		{"each once", []string{"n2"}, &lost, []string{"n2", "n1"}},
		{"a service speaks against none", nil, &record.Failure{Kind: ServiceDied, LostNodes: []int{1}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			whole := append(slices.Clone(tc.nodes), "other")
			if got := AddBlamedHosts(whole[:len(tc.nodes)], tc.cause, unknown); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if whole[len(tc.nodes)] != "other" {
				t.Errorf("the caller's nodes are changed: %q", whole)
			}
		})
	}
}
