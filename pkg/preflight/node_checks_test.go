package preflight_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/preflight"
)

// TestLongest verifies that the maximum duration covers an inspection that begins at the deadline
// and finds that the driver hangs: otherwise this would not be reported.
func TestLongest(t *testing.T) {
	for mode, want := range map[check.GPUMode]time.Duration{
		check.ModeAuto: time.Minute + gpu.DefaultProbeTimeout,
		check.ModeOff:  time.Minute,
	} {
		checks, err := preflight.NewNodeChecks(preflight.NodeConfig{
			Config:      check.Config{Timeout: time.Minute, Policy: check.Policy{Mode: mode}},
			GrantedGPUs: -1, Root: t.TempDir(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := checks.MaxDuration(); got <= want {
			t.Errorf("with %s the checks may take %s, want more than %s", mode, got, want)
		}
	}
}

// TestRoot verifies that a daemon without a configured root inspects its own machine.
func TestRoot(t *testing.T) {
	auto := check.Config{Policy: check.Policy{Mode: check.ModeAuto}}
	checks, err := preflight.NewNodeChecks(preflight.NodeConfig{Config: auto, GrantedGPUs: -1})
	if err != nil {
		t.Fatal(err)
	}
	if root := checks.GPUs().Root; root != "/" {
		t.Errorf("GPUs are looked for below %q, want /", root)
	}
}

// TestEnvironIsHeeded verifies that network cards named in the driver's environment must be up,
// unless there is no other node.
func TestEnvironIsHeeded(t *testing.T) {
	root := t.TempDir()
	port := filepath.Join(root, "sys/class/infiniband/mlx5_0/ports/1")
	if err := os.MkdirAll(port, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"state": "1: DOWN", "phys_state": "3: Disabled",
		"rate": "10 Gb/sec (4X SDR)", "link_layer": "InfiniBand", "../../fw_ver": "28.39.1002"} {
		if err := os.WriteFile(filepath.Join(port, name), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for nodes, want := range map[int]check.Verdict{1: check.Warn, 2: check.Fail} {
		checks, err := preflight.NewNodeChecks(preflight.NodeConfig{
			Config: check.Config{Policy: check.Policy{Mode: check.ModeOff}}, Root: root, TempDir: t.TempDir(),
			Environ: []string{"NCCL_IB_HCA=mlx5_0"}, Nodes: nodes,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range checks.AwaitReady(t.Context(), nil).Findings {
			if f.ID == "net.ib" && f.Verdict != want {
				t.Errorf("on %d nodes it is %s: %s", nodes, f.Verdict, f.Observed)
			}
		}
	}
}
