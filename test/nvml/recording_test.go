package nvml_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
	"github.com/bringupd/bringupd/pkg/preflight"
)

// TestRecording checks that the evaluation of a recorded node gives the same result on another
// machine.
func TestRecording(t *testing.T) {
	for name, tc := range map[string]struct{ lines, visible string }{
		"all is well":           {"", "0,1,2,3,4,5,6,7"},
		"a failed remap":        {"gpu 2 remap_failed 1", "2,3"},
		"no driver":             {"init 9", "0"},
		"a GPU that is lost":    {"gpu 3 handle 15", "3"},
		"a GPU that others use": {"gpu 6 pid 1", "6"}, // process 1 exists everywhere
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := saying(t, tc.lines)
			file := filepath.Join(t.TempDir(), "recording.json")
			command := exec.CommandContext(t.Context(), program, "check", "--json",
				"--start-timeout=1s", "--record="+file)
			command.Env = append(fake.Environ(), gpu.VisibleDevicesVariable+"="+tc.visible)
			out, err := command.Output()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			var live check.Report
			if err := json.Unmarshal(out, &live); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var recorded preflight.Recording
			if err := json.Unmarshal(data, &recorded); err != nil {
				t.Fatal(err)
			}
			found := fitness.EvaluateFacts(*recorded.Facts, expect(t, *recorded.Expected))
			then := check.Policy{Mode: recorded.Expected.Mode}.Apply(found)
			if diff := cmp.Diff(told(live.Findings), told(then)); diff != "" {
				t.Errorf("it was, and is now: %s", diff)
			}
		})
	}
}

// expect converts the recorded expectation for the evaluation.
func expect(t *testing.T, e preflight.ExpectedGPUs) fitness.Expectation {
	t.Helper()
	visible, err := gpu.ParseVisibleDevices(strings.Join(e.Visible, ","))
	if err != nil {
		t.Fatal(err)
	}
	return fitness.Expectation{
		Count: e.Count, CountSource: e.CountFrom, Visible: visible, PCIBusOrder: e.PCIOrder,
		Mode: e.Mode, Signs: e.Signs, LibraryNamed: e.Named,
	}
}

// told returns the findings about GPUs that a recording contains completely. It does not contain
// the environment and the users of a GPU.
func told(all []check.Finding) (some []check.Finding) {
	for _, f := range all {
		if f.ID == "gpu.env" || !slices.Contains(fitness.ListIDs(), f.ID) {
			continue
		}
		if f.ID == "gpu.busy" && !f.IsQuiet() {
			f.Observed = ""
		}
		if f.Verdict == check.Fail { // the check waited in vain
			f.Verdict = check.Wait
			f.Observed, _, _ = strings.Cut(f.Observed, " (still")
		}
		some = append(some, f)
	}
	return some
}
