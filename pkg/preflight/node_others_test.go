package preflight

import (
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/test/zoo"
)

// TestOtherVendors verifies that a node with GPUs of AMD or Intel passes with the number that Slurm
// grants, without NVML, and that its GPUs are distinguished (N1).
func TestOtherVendors(t *testing.T) {
	for _, node := range zoo.All {
		for _, mode := range []check.GPUMode{check.ModeAuto, check.ModeRequire, check.ModeStrict} {
			t.Run(node.Name+"/"+string(mode), func(t *testing.T) {
				checks, err := NewNodeChecks(NodeConfig{
					Config: check.Config{Policy: check.Policy{Mode: mode,
						Rules: []check.Rule{{Pattern: "host.*", Effect: check.EffectOff}}}},
					Root: node.Tree(t), TempDir: t.TempDir(), GrantedGPUs: node.Count,
					GrantedBy: "SLURM_GPUS_ON_NODE", Environ: []string{},
				})
				must(t, err)
				checks.gpus.Prober = untouchable{t}
				report := checks.AwaitReady(t.Context(), nil)
				if report.Verdict != check.Pass {
					t.Errorf("it is %s: %+v", report.Verdict, report.Findings)
				}
				said := ""
				for _, f := range report.Findings {
					said += f.Observed + "\n"
				}
				vendor := checks.GPUs().Topology().GPUs[0].Vendor
				if vendor == "" || !strings.Contains(strings.ToLower(said), string(vendor)) {
					t.Errorf("it says %s of GPUs of %q", said, vendor)
				}
			})
		}
	}
}
