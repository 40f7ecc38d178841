package preflight

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/eventlog"
)

// having returns the report of a node with this number of GPUs.
func having(gpus string, found ...check.Finding) check.Report {
	return check.Report{Version: check.ReportVersion,
		Attributes: []check.Attribute{{ID: check.AttrGPUCount, Value: gpus}}, Findings: found}
}

// TestComparison compares nodes, one of which is the head; one report of each other kind is read.
func TestComparison(t *testing.T) {
	eight, seven, none := having("8"), having("7"), having("0")
	warned := having("8", check.Finding{ID: "host.disk", Verdict: check.Warn, Observed: "little is left"})
	errRead := errors.New("cannot read it")
	strict := func(found []check.Finding) []check.Finding { return found }
	lenient := func(found []check.Finding) []check.Finding {
		found = slices.Clone(found)
		for i := range found {
			found[i].Verdict = check.Warn
		}
		return found
	}
	for _, tc := range []struct {
		name    string
		reports []check.Report // by node; the first is the head's own
		unread  error          // for all nodes but the head
		policy  func([]check.Finding) []check.Finding
		lost    []int // nil: no difference that matters
		gpus    bool
		read    int // number of reports that were read
		says    string
	}{
		{"all alike", []check.Report{eight, eight, eight}, nil, strict, nil, true, 0, ""},
		{"alike without GPUs", []check.Report{none, none}, nil, strict, nil, false, 0, ""},
		{"one has fewer", []check.Report{eight, eight, seven}, nil, strict, []int{2}, true, 1, ""},
		{"two have fewer, and one of them is read",
			[]check.Report{eight, eight, eight, seven, seven}, nil, strict, []int{3, 4}, true, 1, ""},
		{"fewer, where that may be", []check.Report{eight, eight, seven}, nil, lenient, nil, true,
			1, "the nodes differ: "},
		{"one is warned", []check.Report{eight, eight, warned}, nil, strict, nil, true, 1, "check warning: host.disk"},
		{"one can't be read", []check.Report{eight, eight, seven}, errRead, strict, nil, true, 1,
			"cannot compare some nodes with the others"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			core, said := observer.New(zap.WarnLevel)
			var mu sync.Mutex
			read := 0
			c := Comparison{
				OwnReport: tc.reports[0], ApplyPolicy: tc.policy, FormatHosts: formatNodes,
				Trail: eventlog.New(), Log: zap.New(core),
				ReadReport: func(_ context.Context, node int, kind int64) (check.Report, error) {
					mu.Lock()
					defer mu.Unlock()
					read++
					if kind != tc.reports[node].KindHash() {
						t.Errorf("node %d is asked for as of another kind", node)
					}
					if tc.unread != nil {
						return check.Report{}, tc.unread
					}
					return tc.reports[node], nil
				},
			}
			kinds := make(map[int64][]int)
			for node, report := range tc.reports {
				kinds[report.KindHash()] = append(kinds[report.KindHash()], node)
			}
			differ, gpus, err := c.CompareNodes(t.Context(), kinds)
			if err != nil || gpus != tc.gpus || read != tc.read {
				t.Errorf("the error is %v, GPUs are found: %v, and %d ranks were read", err, gpus, read)
			}
			switch {
			case (differ != nil) != (tc.lost != nil):
				t.Errorf("the difference is %v", differ)
			case differ != nil && !slices.Equal(differ.LostNodes, tc.lost):
				t.Errorf("the odd ones are %v, not %v", differ.LostNodes, tc.lost)
			}
			var lines []string
			for _, entry := range said.All() {
				lines = append(lines, entry.Message)
			}
			if all := strings.Join(lines, "\n"); !strings.Contains(all, tc.says) || tc.says == "" && all != "" {
				t.Errorf("it says %q, and should say %q", all, tc.says)
			}
		})
	}
}

// TestComparisonThatIsCutShort verifies that a comparison ends with the cause of its context.
func TestComparisonThatIsCutShort(t *testing.T) {
	errOver := errors.New("the run is over")
	ctx, end := context.WithCancelCause(t.Context())
	c := Comparison{
		OwnReport: having("8"), FormatHosts: formatNodes, Trail: eventlog.New(), Log: zap.NewNop(),
		ReadReport: func(context.Context, int, int64) (check.Report, error) {
			end(errOver)
			return check.Report{}, context.Cause(ctx)
		},
	}
	if _, _, err := c.CompareNodes(ctx, map[int64][]int{having("8").KindHash(): {0},
		having("7").KindHash(): {1}}); !errors.Is(err, errOver) {
		t.Errorf("the error is %v", err)
	}
}

func formatNodes(nodes []int) string { return textutil.FormatIndices("node", nodes) }
