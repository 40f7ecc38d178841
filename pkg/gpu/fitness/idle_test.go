package fitness

import (
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// Only whole GPUs of the job's own that nobody uses are put to work; of the others it is told why not.
func TestIdleGPUs(t *testing.T) {
	busy := load(t, "h100")
	busy.GPUs[3].Procs = read([]gpu.Process{{PID: 4711, Used: 40 << 30, Name: "python"}})
	full := load(t, "h100")
	full.GPUs[7].Memory = read(gpu.Memory{Total: 80 << 30, Used: 70 << 30})
	nameless := load(t, "h100")
	nameless.GPUs[0].UUID = unread[string](gpu.UnknownError)
	for _, tc := range []struct {
		name  string
		facts gpu.Facts
		want  Expect
		idle  int
		left  []string
	}{
		{"eight", load(t, "h100"), Expect{Count: 8}, 8, nil},
		{"two of them", load(t, "h100"), Expect{Count: 2, Visible: []gpu.Selector{{Index: 0}, {Index: 1}}}, 2, nil},
		{"nobody says which two", load(t, "h100"), Expect{Count: 2}, 0, []string{"not put to work: which of 8 GPUs are the job's is not known"}},
		{"one computes", busy, Expect{Count: 8}, 7, []string{"GPU 3: not put to work: it is in use: process 4711 (python)"}},
		{"one is full", full, Expect{Count: 8}, 7, []string{"GPU 7: not put to work: it is in use: 70 GiB"}},
		{"one has no name", nameless, Expect{Count: 8}, 7, []string{"GPU 0: not put to work: its UUID can't be read"}},
		{"one is lost", load(t, "h100-lost"), Expect{Count: -1}, 7, nil},
		{"cut up", load(t, "a100-mig"), Expect{Count: -1}, 0, []string{"it is cut up (MIG)", "it is cut up (MIG)"}},
		{"a job without", load(t, "h100"), Expect{Count: 0}, 0, []string{"the job has no GPU here"}},
		{"no driver", load(t, "no-driver"), Expect{Count: 8}, 0, []string{"the job has no GPU here"}},
	} {
		idle, left := Idle(tc.facts, tc.want)
		if len(idle) != tc.idle || len(left) != len(tc.left) {
			t.Errorf("%s: %v, %+v", tc.name, idle, left)
			continue
		}
		for i, f := range left {
			text := f.Observed
			if f.Device != nil {
				text = check.Device{Index: f.Device.Index}.String() + ": " + text
			}
			if f.Verdict != check.Skip || !strings.Contains(text, tc.left[i]) {
				t.Errorf("%s: %s, want %q", tc.name, text, tc.left[i])
			}
		}
	}
}
