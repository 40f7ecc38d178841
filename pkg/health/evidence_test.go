package health

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// unfit returns the failure of a node with failed and passed checks: "host.disk FAIL environment,
// gpu.count PASS".
func unfit(kind Kind, node int, checks string) ObservedFailure {
	type found struct {
		ID      string `json:"id"`
		Verdict string `json:"verdict"`
		Class   string `json:"class,omitempty"`
	}
	var report struct {
		Findings []found `json:"findings"`
	}
	for one := range strings.SplitSeq(checks, ", ") {
		words := append(strings.Fields(one), "", "", "")
		report.Findings = append(report.Findings, found{words[0], words[1], words[2]})
	}
	text, err := json.Marshal(report)
	if err != nil {
		panic(err)
	}
	o := ObservedFailure{Failure: record.Failure{Kind: kind, Message: "unfit", Report: text},
		ObservedAt: time.Unix(100, 0)}
	o.NodeIndex, o.Host = node, fmt.Sprintf("n%d", node)
	return o
}

// unreported returns the failure of a node without a report of its checks.
func unreported(kind Kind, node int) ObservedFailure {
	o := unfit(kind, node, "")
	o.Report = nil
	return o
}

// TestExtraOutcomeWait verifies that a node waits longer for the outcome of an environment check, by
// as much as its verdict does.
func TestExtraOutcomeWait(t *testing.T) {
	for kind, want := range map[Kind]time.Duration{
		CheckEnvironment: EvidenceTimeout, CheckFailed: 0, ServiceDied: 0,
	} {
		if got := ExtraOutcomeWait(kind); got != want {
			t.Errorf("%s: it waits %s longer, want %s", kind, got, want)
		}
	}
}

// TestWeigh verifies how a failed environment check is classified in the light of the other
// records.
func TestWeigh(t *testing.T) {
	const disk = "host.disk FAIL environment"
	for _, tc := range []struct {
		name     string
		failures []ObservedFailure
		passed   []int
		earlier  []record.Failure
		want     string
		waits    time.Duration // for a job of four nodes
	}{
		{"the others pass", facts{unfit(CheckEnvironment, 2, disk)}, []int{0, 1, 3}, nil, "check", 0},
		{"one other passes", facts{unfit(CheckEnvironment, 2, disk)}, []int{3}, nil, "check", 0},
		{"nobody has spoken", facts{unfit(CheckEnvironment, 2, disk)}, nil, nil, "check-user", EvidenceTimeout},
		{"it says itself that it passes", facts{unfit(CheckEnvironment, 2, disk)}, []int{2}, nil,
			"check-user", EvidenceTimeout},
		{"without a report, and one other passes", facts{unreported(CheckEnvironment, 2)}, []int{3}, nil, "check", 0},
		{"without a report, as another node before", facts{unreported(CheckEnvironment, 2)},
			[]int{3}, []record.Failure{unreported(CheckEnvironment, 1).Failure}, "check-user", 0},
		{"without a report, and another node has failed otherwise before",
			facts{unreported(CheckEnvironment, 2)}, []int{3},
			[]record.Failure{unreported(CheckFailed, 1).Failure}, "check", 0},
		{"another has passed this on one device only", facts{
			unfit(CheckEnvironment, 1, disk), unfit(CheckFailed, 2, "host.disk PASS, host.disk FAIL node"),
		}, nil, nil, "check-user check", EvidenceTimeout},
		{"all fail the same", facts{
			unfit(CheckEnvironment, 0, disk), unfit(CheckEnvironment, 1, disk),
			unfit(CheckEnvironment, 2, disk), unfit(CheckEnvironment, 3, disk),
		}, nil, nil, "check-user check-user check-user check-user", 0},
		{"another fails otherwise, and passes this", facts{
			unfit(CheckEnvironment, 1, disk), unfit(CheckFailed, 2, "gpu.count FAIL node, host.disk PASS"),
		}, nil, nil, "check check", 0},
		{"another fails otherwise, and was not asked this", facts{
			unfit(CheckEnvironment, 1, disk), unfit(CheckFailed, 2, "gpu.count FAIL node"),
		}, nil, nil, "check-user check", EvidenceTimeout},
		{"a fault of a device waits for others like it",
			facts{unfit(CheckFailed, 2, "gpu.count FAIL node")}, []int{0}, nil, "check", time.Second},
		{"and no longer once all have spoken", facts{unfit(CheckFailed, 2, "gpu.count FAIL node")},
			[]int{0, 1, 3}, nil, "check", 0},
		{"another node failed it before", facts{unfit(CheckEnvironment, 2, disk)}, []int{0, 1},
			[]record.Failure{unfit(CheckFailed, 1, disk).Failure}, "check-user", 0},
		{"this node failed it before", facts{unfit(CheckEnvironment, 2, disk)}, []int{0, 1},
			[]record.Failure{unfit(CheckFailed, 2, disk).Failure}, "check", 0},
		{"another node failed another check before", facts{unfit(CheckEnvironment, 2, disk)},
			[]int{0, 1}, []record.Failure{unfit(CheckFailed, 1, "gpu.nvml FAIL environment").Failure}, "check", 0},
		{"what is the job's own stays", facts{unfit(CheckUser, 2, "gpu.count FAIL user")},
			[]int{0, 1}, nil, "check-user", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var kinds []string
			for _, o := range ClassifyEnvironmentFailures(tc.failures, tc.passed,
				func() []record.Failure { return tc.earlier }) {
				kinds = append(kinds, string(o.Kind))
			}
			if got := strings.Join(kinds, " "); got != tc.want {
				t.Errorf("it is %s, want %s", got, tc.want)
			}
			until := UndecidedUntil(tc.failures, tc.passed, 4)
			if want := tc.failures[0].ObservedAt.Add(tc.waits); tc.waits == 0 != until.IsZero() ||
				tc.waits > 0 && !until.Equal(want) {
				t.Errorf("it waits until %v, want %s", until, tc.waits)
			}
		})
	}
}
