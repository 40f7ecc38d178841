package nodecheck

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
	"github.com/bringupd/bringupd/pkg/gpu/history"
	"github.com/bringupd/bringupd/pkg/signal"
)

func some[T any](value T) gpu.Reading[T] { return gpu.Reading[T]{Value: &value} }

// countedGPUs is a Driver with counters, of a node with a GPU that answers and one that is lost.
type countedGPUs struct{ twoGPUs }

func (*countedGPUs) Probe(context.Context, func(gpu.Progress)) (gpu.Facts, error) {
	return gpu.Facts{
		Version: gpu.FactsVersion, Init: gpu.Success,
		GPUs: []gpu.GPU{
			{
				Index: 0, Handle: gpu.Success, UUID: some("GPU-a"), Bus: some("0000:1b:00.0"), Name: some("H100"),
				Health: gpu.Health{Remapped: some(gpu.RemappedRows{Corrected: 1, Uncorrected: 2})},
			},
			{Index: 1, Handle: gpu.GPUIsLost, Bus: some("0000:9b:00.0")},
		},
		Slots: []gpu.PCISlot{{Bus: "0000:1b:00.0", ID: "10de:2330"}, {Bus: "0000:9b:00.0", ID: gpu.OffBus}},
	}, nil
}

func (*countedGPUs) Watch(_ context.Context, ready func(int), _ func(gpu.Event), tally func([]gpu.WatchCounters)) error {
	ready(2)
	for looks := range 9 {
		tally([]gpu.WatchCounters{{UUID: "GPU-a", Polls: looks + 1, SlowedPolls: looks, Remapped: some(3 + looks)}})
	}
	return nil
}

// seenGPUs returns these GPUs after an inspection, with one network card all of whose data is
// known.
func seenGPUs(t *testing.T) *GPUs {
	t.Helper()
	root := t.TempDir()
	class := filepath.Join(root, "sys/class/infiniband")
	for name, guid := range map[string]string{"mlx5_0": "506b:4b03:00c0:ffee\n", "mlx5_1": "0000:0000:0000:0000\n", "mlx5_2": ""} {
		if err := os.MkdirAll(filepath.Join(class, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../../0000:18:00.0", filepath.Join(class, name, "device")); err != nil {
			t.Fatal(err)
		}
		if guid != "" {
			if err := os.WriteFile(filepath.Join(class, name, "node_guid"), []byte(guid), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	g := &GPUs{Prober: &countedGPUs{}, Expect: fitness.Expectation{Count: -1}, LibraryNamed: true, Root: root, Table: gpu.BuiltinXidTable()}
	g.Inspect(t.Context(), func([]check.Finding) {})
	return g
}

func TestDevices(t *testing.T) {
	g := seenGPUs(t)
	if err := g.Watch(t.Context(), func(int) {}, func(gpu.ClassifiedEvent) {}); err != nil {
		t.Fatal(err)
	}
	devices, slots := g.Devices()
	if diff := cmp.Diff([]string{"0000:1b:00.0"}, slots); diff != "" {
		t.Errorf("the bus has %s", diff)
	}
	if len(devices) != 2 || devices[0].Counters == nil || devices[1].ID != "506b:4b03:00c0:ffee" || devices[1].Bus != "0000:18:00.0" {
		t.Fatalf("there are %+v", devices)
	}
	if is := devices[0]; is.ID != "GPU-a" || is.Model != "H100" || is.RemappedRows.OrZero() != 11 || is.Counters.Polls != 9 || is.Counters.SlowedPolls != 8 || *is.Counters.Increase.Rows != 8 {
		t.Errorf("it is %+v, with %+v", is, is.Counters)
	}
	counters := filepath.Join(g.Root, "sys/class/infiniband/mlx5_0/ports/1/counters")
	if err := os.MkdirAll(counters, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, downs := range []string{"7\n", "7\n", "9\n"} {
		if err := os.WriteFile(filepath.Join(counters, "link_downed"), []byte(downs), 0o600); err != nil {
			t.Fatal(err)
		}
		devices, _ = g.Devices()
	}
	if course := devices[1].Counters; course == nil || course.Increase.LinkRecoveries != nil || course.SummaryText() != "link went down 2 times" {
		t.Errorf("of the link it tells %+v: %s", course, course.SummaryText())
	}
	if devices, slots := (&GPUs{Root: g.Root}).Devices(); devices != nil || slots != nil {
		t.Errorf("without GPUs there are %+v", devices)
	}
}

// TestDeadCard verifies that a card whose firmware does not answer is waited for once, and still
// counts as a device of the node.
func TestDeadCard(t *testing.T) {
	t.Parallel()
	g := seenGPUs(t)
	counters := filepath.Join(g.Root, "sys/class/infiniband/mlx5_0/ports/1/counters")
	if err := os.MkdirAll(counters, 0o700); err != nil {
		t.Fatal(err)
	}
	silent := filepath.Join(counters, "link_downed")
	if err := unix.Mkfifo(silent, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 20 {
		if devices, _ := g.Devices(); len(devices) != 2 || devices[1].Counters != nil {
			t.Errorf("there are %+v", devices)
		}
	}
	if waited := time.Since(began); waited < linkReadTimeout || waited > 5*linkReadTimeout {
		t.Errorf("it waits for %v", waited)
	}
	file, err := os.OpenFile(silent, os.O_WRONLY, 0) // releases the readers
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Error(err)
	}
}

// TestPastByHand verifies that the records of jobs are compared with the present devices, and that
// no new record is written.
func TestPastByHand(t *testing.T) {
	g := seenGPUs(t)
	warned := check.Finding{ID: "gpu.remap", Device: &check.Device{UUID: "GPU-a"}, Verdict: check.Warn, Class: check.ClassNode, Observed: "600 rows"}
	was := func(uuid string, found ...history.Suspicion) *history.Record {
		r := history.Record{}.NextRecord("7.0", time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC), []history.Device{{ID: uuid, Bus: "0000:1b:00.0", RemappedRows: some(3)}}, nil, found)
		return &r
	}
	for name, tc := range map[string]struct {
		left *history.Record
		mode os.FileMode
		want []string
	}{
		"nothing was left": {nil, 0o700, []string{"SKIP no earlier run with GPUs has a record of this node"}},
		"nothing is new":   {was("GPU-a"), 0o700, []string{"PASS no change since run 7.0 of 2026-11-20"}},
		"another GPU":      {was("GPU-old"), 0o700, []string{"WARN replaced since run 7.0: now GPU-a, was GPU-old"}},
		"suspected again": {
			was("GPU-a", history.Suspicion{Run: "7.0", Device: "GPU-a", Kind: "gpu.remap", What: "512 rows"}), 0o700,
			[]string{"WARN gpu.remap: 600 rows; also in run 7.0 of 0001-01-01: 512 rows"},
		},
		"anybody may write there": {was("GPU-old"), 0o777, []string{"SKIP cannot list "}},
	} {
		t.Run(name, func(t *testing.T) {
			logs := t.TempDir()
			host := filepath.Join(logs, signal.HistoryDir, "n1")
			if tc.left != nil {
				data, err := json.Marshal(tc.left)
				if err == nil {
					err = os.MkdirAll(host, 0o700)
				}
				if err == nil {
					err = os.WriteFile(filepath.Join(host, "000001.7.0.0000"), data, 0o600)
				}
				if err == nil {
					err = os.Chmod(host, tc.mode)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for i, f := range (historyCheck{signal.Location{LogDir: logs, Host: "n1"}.HostHistory(), g}).compareDevices(t.Context(), []check.Finding{warned}) {
				text := string(f.Verdict) + " " + f.Observed
				got = append(got, text[:min(len(text), len(tc.want[i]))])
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			entries, _ := os.ReadDir(logs)
			if left, _ := os.ReadDir(host); len(entries) > 1 || tc.left == nil && len(entries) > 0 || len(left) > 1 {
				t.Errorf("there are %v and %v", entries, left)
			}
		})
	}
}
