package shown

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/metrics"
)

func TestCountFindings(t *testing.T) {
	got := countFindings([]check.Finding{
		{ID: "gpu.ecc", Verdict: check.Fail}, {ID: "disk", Verdict: check.Pass}, {ID: "gpu.ecc", Verdict: check.Pass}, {ID: "gpu.ecc", Verdict: check.Fail},
	})
	want := []metrics.Check{{ID: "disk", Verdict: "PASS", Count: 1}, {ID: "gpu.ecc", Verdict: "FAIL", Count: 2}, {ID: "gpu.ecc", Verdict: "PASS", Count: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
