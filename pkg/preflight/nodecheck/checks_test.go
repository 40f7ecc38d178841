package nodecheck_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/preflight/nodecheck"
)

// TestLongest verifies that the maximum duration covers an inspection that begins at the deadline
// and finds that the driver hangs: otherwise this would not be reported.
func TestLongest(t *testing.T) {
	for mode, want := range map[check.GPUMode]time.Duration{
		check.ModeAuto: time.Minute + gpu.DefaultProbeTimeout,
		check.ModeOff:  time.Minute,
	} {
		checks, err := nodecheck.New(nodecheck.Config{
			Config: check.Config{Timeout: time.Minute, Policy: check.Policy{Mode: mode}}, GrantedGPUs: -1, Root: t.TempDir(),
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
	checks, err := nodecheck.New(nodecheck.Config{Config: check.Config{Policy: check.Policy{Mode: check.ModeAuto}}, GrantedGPUs: -1})
	if err != nil {
		t.Fatal(err)
	}
	if root := checks.GPUs().Root; root != "/" {
		t.Errorf("GPUs are looked for below %q, want /", root)
	}
}

// TestKernel verifies that the kernel log is read if there is a GPU or a GPU driver, and evaluated
// with the table of Xids.
func TestKernel(t *testing.T) {
	const xids = "4,0,1,-;NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=a, Graphics Exception\n" +
		"4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)\n" +
		"4,2,3,-;NVRM: Xid (PCI:0000:5e:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001)\n"
	for name, tc := range map[string]struct {
		file, log string
		mode      check.GPUMode
		want      []string
	}{
		"no GPU":             {"dev/null", xids, check.ModeAuto, nil},
		"not to be looked":   {"dev/nvidiactl", xids, check.ModeOff, nil},
		"a GPU":              {"dev/nvidiactl", xids, check.ModeAuto, []string{"WARN Xid 149 (an NVLink error, in the unit NETIR), "}},
		"a GPU, strictly":    {"dev/nvidiactl", xids, check.ModeStrict, []string{"FAIL Xid 149 (an NVLink error, in the unit NETIR), "}},
		"a GPU that is well": {"dev/nvidiactl", "5,0,0,-;Linux version 6.12.0\n", check.ModeStrict, []string{"PASS no serious errors since boot ("}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range map[string]string{tc.file: "", "dev/kmsg": tc.log} {
				path := filepath.Join(root, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			checks, err := nodecheck.New(nodecheck.Config{Config: check.Config{Policy: check.Policy{Mode: tc.mode}}, GrantedGPUs: -1, Root: root, TempDir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			// The context has ended, so the check does not wait for the driver, which does not answer.
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			var said []string
			for _, f := range checks.AwaitReady(ctx, nil).Findings {
				if f.ID == "host.kernel" {
					said = append(said, string(f.Verdict)+" "+f.Observed)
				}
			}
			if !slices.EqualFunc(said, tc.want, strings.HasPrefix) {
				t.Errorf("it says %q, want %q", said, tc.want)
			}
		})
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
	for name, text := range map[string]string{"state": "1: DOWN", "phys_state": "3: Disabled", "rate": "10 Gb/sec (4X SDR)", "link_layer": "InfiniBand"} {
		if err := os.WriteFile(filepath.Join(port, name), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for nodes, want := range map[int]check.Verdict{1: check.Warn, 2: check.Fail} {
		checks, err := nodecheck.New(nodecheck.Config{
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
