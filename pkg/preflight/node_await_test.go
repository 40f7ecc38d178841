package preflight

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
)

// script is a check that returns one result after the other; the last one stays.
type script struct {
	shows [][]check.Finding
	looks int
}

func (s *script) Inspect(context.Context, func([]check.Finding)) []check.Finding {
	shown := s.shows[min(s.looks, len(s.shows)-1)]
	s.looks++
	return slices.Clone(shown)
}

func (s *script) Attributes() []check.Attribute {
	return []check.Attribute{{ID: "x.kernel", Value: "6.1"}, {ID: "x.driver", Value: "570"}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within returns a configuration whose checks wait for this long.
func within(d time.Duration) NodeConfig { return NodeConfig{Config: check.Config{Timeout: d}} }

func finding(id string, v check.Verdict) check.Finding { return check.Finding{ID: id, Verdict: v} }

func verdicts(r check.Report) map[string]check.Verdict {
	all := make(map[string]check.Verdict)
	for _, f := range r.Findings {
		all[f.ID] = f.Verdict
	}
	return all
}

func TestAwait(t *testing.T) {
	pass, wait, fail := check.Pass, check.Wait, check.Fail
	one := func(vs ...check.Verdict) *script {
		s := &script{}
		for _, v := range vs {
			s.shows = append(s.shows, []check.Finding{finding("gpu.fabric", v)})
		}
		return s
	}
	for _, tc := range []struct {
		name   string
		part   *script
		other  *script
		policy check.Policy
		want   map[string]check.Verdict
		looks  int // of the script; the other check runs once unless it waits
	}{
		{"all is well", one(pass), nil, check.Policy{}, map[string]check.Verdict{"gpu.fabric": pass}, 1},
		{"what becomes ready", one(wait, wait, pass), nil, check.Policy{},
			map[string]check.Verdict{"gpu.fabric": pass}, 3},
		{"what does not", one(wait), nil, check.Policy{}, map[string]check.Verdict{"gpu.fabric": fail}, 9},
		{
			"a failure elsewhere waits for nothing", one(wait),
			&script{shows: [][]check.Finding{{finding("net.ib", fail)}}},
			check.Policy{}, map[string]check.Verdict{"gpu.fabric": wait, "net.ib": fail}, 1,
		},
		{
			"what fails while something is waited for", one(wait, fail), nil, check.Policy{},
			map[string]check.Verdict{"gpu.fabric": fail}, 2,
		},
		{
			"what is only to be told of is waited for and told of", one(wait), nil,
			check.Policy{Rules: []check.Rule{{Pattern: "gpu.fabric", Effect: check.EffectWarn}}},
			map[string]check.Verdict{"gpu.fabric": check.Warn}, 1,
		},
		{
			"what is off is not waited for", one(wait), nil,
			check.Policy{Rules: []check.Rule{{Pattern: "gpu.*", Effect: check.EffectOff}}},
			map[string]check.Verdict{}, 1,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := &NodeChecks{NodeConfig: within(10 * time.Second), nodeChecks: []nodeCheck{tc.part}}
				node.Policy = tc.policy
				if tc.other != nil {
					node.nodeChecks = append(node.nodeChecks, tc.other)
				}
				report := node.AwaitReady(t.Context(), nil)
				if diff := cmp.Diff(tc.want, verdicts(report)); diff != "" {
					t.Errorf("the verdicts (-want +got):\n%s", diff)
				}
				if tc.part.looks != tc.looks {
					t.Errorf("there were %d looks, want %d", tc.part.looks, tc.looks)
				}
				if tc.other != nil && tc.other.looks != 1 {
					t.Errorf("there were %d looks at what had nothing to wait for, want 1", tc.other.looks)
				}
			})
		})
	}
}

// TestPatience verifies that a wait with a short limit ends before the others.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := finding("gpu.busy", check.Wait)
		busy.MaxWait = 3 * time.Second
		began := time.Now()
		report := (&NodeChecks{NodeConfig: within(time.Minute),
			nodeChecks: []nodeCheck{&script{shows: [][]check.Finding{{busy}}}}}).AwaitReady(t.Context(), nil)
		if report.Verdict != check.Fail {
			t.Errorf("the verdict is %s, want FAIL", report.Verdict)
		}
		if waited := time.Since(began); waited < 3*time.Second || waited > 6*time.Second {
			t.Errorf("it was waited for %s, want 3 s and a pause at most", waited)
		}
	})
}

func TestAwaitIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		told := 0
		node := &NodeChecks{
			NodeConfig: within(time.Hour),
			nodeChecks: []nodeCheck{&script{shows: [][]check.Finding{{finding("gpu.fabric", check.Wait)}}}},
			activeChecks: func(context.Context, bool) []check.Finding {
				t.Error("an active check was run")
				return nil
			},
		}
		report := node.AwaitReady(ctx, func(check.Report) {
			if told++; told == 3 {
				cancel(errors.New("the run is over"))
			}
		})
		if report.Verdict != check.Wait || told != 3 {
			t.Errorf("the verdict is %s after %d words of progress, want WAIT after 3", report.Verdict, told)
		}
	})
}

func TestActive(t *testing.T) {
	for _, tc := range []struct {
		name    string
		passive check.Verdict
		fit     bool
		want    check.Verdict
	}{
		{"a node that is well is put to work", check.Warn, true, check.Fail},
		{"a node that is not is told of", check.Fail, false, check.Fail},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var told *bool
			node := &NodeChecks{
				nodeChecks: []nodeCheck{&script{shows: [][]check.Finding{{finding("gpu.clocks", tc.passive)}}}},
				activeChecks: func(_ context.Context, fit bool) []check.Finding {
					told = &fit
					return []check.Finding{finding("active.nccl", check.Fail)}
				},
			}
			report := node.AwaitReady(t.Context(), nil)
			if report.Verdict != tc.want || told == nil || *told != tc.fit || len(report.Findings) != 2 {
				t.Errorf("got %+v, told %v, want %s of 2 findings, told %v", report, told, tc.want, tc.fit)
			}
		})
	}
}

func TestTraitsAreInOrder(t *testing.T) {
	node := &NodeChecks{NodeConfig: NodeConfig{Program: "v1"},
		nodeChecks: []nodeCheck{&script{shows: [][]check.Finding{{}}}}}
	want := []check.Attribute{{ID: "x.bringupd", Value: "v1"}, {ID: "x.driver", Value: "570"},
		{ID: "x.kernel", Value: "6.1"}}
	if diff := cmp.Diff(want, node.AwaitReady(t.Context(), nil).Attributes); diff != "" {
		t.Errorf("the traits (-want +got):\n%s", diff)
	}
}
