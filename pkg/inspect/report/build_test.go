package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
)

func TestPhasesByNearestRank(t *testing.T) {
	var nodes []NodeRow
	for node := range 10 {
		lane := PhaseLane{Phase: "check", From: 5, To: time.Duration(5 + node + 1), Open: node == 3, Failed: node == 4}
		nodes = append(nodes, NodeRow{NodeIndex: node, Host: fmt.Sprint("n", node), Lanes: []PhaseLane{lane}})
	}
	want := []PhaseStat{{
		Phase: "check", Nodes: 10, Open: 1, Failed: 1, Min: 1, P50: 5, P90: 9, Max: 10, NodeIndex: 9, Host: "n9",
	}}
	if diff := cmp.Diff(want, phaseStats(nodes)); diff != "" {
		t.Error(diff)
	}
}

// TestCriticalPath verifies the critical path: all nodes wait for the sample's slow check, then for
// that node's service.
func TestCriticalPath(t *testing.T) {
	v := look(8, false)
	var said []string
	for i, s := range v.Critical {
		said = append(said, s.Phase+" "+s.Host)
		if i > 0 && s.From != v.Critical[i-1].To {
			t.Errorf("there is a gap before %s", s.Phase)
		}
	}
	if got := strings.Join(said[1:], ", "); got != "check n6, workers n6, gate n0, driver n0" {
		t.Errorf("the path is %s", got)
	}
	for _, n := range v.Nodes {
		if n.Critical && n.Host != "n6" && n.Host != v.Critical[0].Host {
			t.Errorf("%s is marked as critical", n.Host)
		}
	}
	if n := v.Nodes[0]; n.Host != "n6" {
		t.Errorf("the last to be ready is %s", n.Host)
	}
}

func TestChecksAreGrouped(t *testing.T) {
	report := func(findings ...check.Finding) *check.Report { return &check.Report{Findings: findings} }
	pass := check.Finding{ID: "a", Verdict: check.Pass, Observed: "8"}
	var nodes []timeline.Node
	for node := range 6 {
		nodes = append(nodes, timeline.Node{NodeIndex: node, Host: fmt.Sprint("n", node), Check: report(pass)})
	}
	warning := func(observed string) check.Finding {
		return check.Finding{ID: "b", Verdict: check.Warn, Observed: observed}
	}
	failure := check.Finding{ID: "c", Verdict: check.Fail, Observed: "z"}
	nodes[2].Check = report(pass, warning("x"))
	nodes[3].Check = report(check.Finding{ID: "a", Verdict: check.Pass, Observed: "9"}, warning("y"))
	nodes[5].Check = report(pass, failure, failure)
	want := []CheckGroup{
		{ID: "c", Verdict: "FAIL", Tone: SeverityBad, Observed: "z", Count: 1, On: "n5"},
		{ID: "b", Verdict: "WARN", Tone: SeverityAttention, Observed: "x", Count: 1, On: "n2"},
		{ID: "b", Verdict: "WARN", Tone: SeverityAttention, Observed: "y", Count: 1, On: "n3"},
		{ID: "a", Verdict: "PASS", Tone: SeverityGood, Count: 6, On: "all 6"},
	}
	if diff := cmp.Diff(want, viewBuilder{run: &timeline.Run{Nodes: nodes}}.groupChecks()); diff != "" {
		t.Error(diff)
	}
}

// TestScaleSqueezesTheDriver verifies that a long driver leaves room for the phases before it.
func TestScaleSqueezesTheDriver(t *testing.T) {
	v := look(4, true)
	s := newTimeScale(v)
	if at := s.Position(v.Gate); at < 60 || at > 75 {
		t.Errorf("the gate is at %g %% of the width", at)
	}
	if a, b := s.Position(v.Banner.Chain[0].At), s.Position(v.Last); a < 80 || b != 100 || a >= b {
		t.Errorf("the cause is at %g %%, the end at %g %%", a, b)
	}
	last := 0.0
	for d := time.Duration(0); d <= v.Last; d += v.Last / 1000 {
		if x := s.Position(d); x < last {
			t.Fatalf("the scale goes back at %s", d)
		} else {
			last = x
		}
	}
}

// TestScaleOfARunningDriver verifies that a long driver that still runs reaches the right edge.
func TestScaleOfARunningDriver(t *testing.T) {
	s := newTimeScale(&View{runIdentity: runIdentity{Gate: time.Second, Last: time.Hour}})
	if gate, now := s.Position(time.Second), s.Position(time.Hour); gate < 60 || gate > 75 || now != 100 {
		t.Errorf("the gate is at %g %%, now at %g %%", gate, now)
	}
}

// TestSecretsAreNotShown verifies that the names of variables are shown, but not their values.
func TestSecretsAreNotShown(t *testing.T) {
	for _, format := range []Format{FormatHTML, FormatJSON} {
		var b strings.Builder
		err := look(4, true).Write(&b, format)
		if err != nil || strings.Contains(b.String(), "hush") || !strings.Contains(b.String(), "RAY_PASSWORD") {
			t.Errorf("%s shows the value of a variable, or not its name: %v", format, err)
		}
	}
}
