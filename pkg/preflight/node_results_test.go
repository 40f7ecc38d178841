package preflight

import (
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
)

// TestUnfitFailure verifies what a failed check is evidence of: a wrong variable is a mistake of the
// user, unless the node has a fault as well.
func TestUnfitFailure(t *testing.T) {
	variable := check.Finding{ID: check.IDNetEnv, Verdict: check.Fail, Class: check.ClassUser}
	request := check.Finding{ID: "gpu.count", Verdict: check.Fail, Class: check.ClassUser}
	image := check.Finding{ID: "host.disk", Verdict: check.Fail, Class: check.ClassEnvironment}
	fault := check.Finding{ID: "gpu.remap", Verdict: check.Fail, Class: check.ClassNode}
	for _, tc := range []struct {
		found []check.Finding
		want  health.Kind
	}{
		{[]check.Finding{variable}, health.Usage},
		{[]check.Finding{request, variable}, health.Usage},
		{[]check.Finding{request}, health.CheckUser},
		{[]check.Finding{image, request}, health.CheckEnvironment},
		{[]check.Finding{variable, image}, health.CheckEnvironment},
		{[]check.Finding{image, fault, variable}, health.CheckFailed},
	} {
		if f := UnfitFailure(check.Report{Findings: tc.found}, "n1"); f.Kind != tc.want {
			t.Errorf("%+v: %s, want %s", tc.found, f.Kind, tc.want)
		}
	}
}
