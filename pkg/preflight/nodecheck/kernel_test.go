package nodecheck

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
	"github.com/bringupd/bringupd/pkg/gpu/kmsg"
)

// known returns a reading with that value.
func known[T any](value T) gpu.Reading[T] { return gpu.Reading[T]{Value: &value} }

func TestKernelEvent(t *testing.T) {
	gpus := []gpu.GPU{{Index: 0}, {Index: 1, UUID: known("GPU-1"), Bus: known("0000:3b:00.0")}}
	for name, tc := range map[string]struct {
		said kmsg.Event
		want gpu.Event
		is   bool
	}{
		"an Xid": {
			kmsg.Event{Kind: kmsg.KindXid, Number: 149, Bus: "0000:3b:00.0", Severity: kmsg.Fatal, Detail: "Link 08"},
			gpu.Event{Kind: gpu.KindXid, Xid: 149, GPU: 1, UUID: "GPU-1", Bus: "0000:3b:00.0", Severity: "Fatal", Detail: "Link 08"}, true,
		},
		"lost": {
			kmsg.Event{Kind: kmsg.KindLost, Bus: "0000:3b:00.0"},
			gpu.Event{Kind: gpu.KindLost, GPU: 1, UUID: "GPU-1", Bus: "0000:3b:00.0", Detail: "GPU_IS_LOST"}, true,
		},
		"an NVSwitch": {
			kmsg.Event{Kind: kmsg.KindSXid, Number: 12028, Bus: "0000:c1:00.0", Severity: kmsg.Nonfatal},
			gpu.Event{Kind: gpu.KindSXid, Xid: 12028, GPU: -1, Bus: "0000:c1:00.0", Severity: "Nonfatal"}, true,
		},
		"another job's GPU": {said: kmsg.Event{Kind: kmsg.KindXid, Number: 79, Bus: "0000:5e:00.0"}},
		"an error of PCIe":  {said: kmsg.Event{Kind: kmsg.KindAER, Bus: "0000:3b:00.0", Severity: kmsg.Fatal}},
	} {
		got, is := convertKernelEvent(tc.said, gpus)
		if is != tc.is || is && cmp.Diff(tc.want, got) != "" {
			t.Errorf("%s: %t, %s", name, is, cmp.Diff(tc.want, got))
		}
	}
}

// TestHearsay verifies that an event reported by both sources is reported once, unless the second
// one is more severe.
func TestHearsay(t *testing.T) {
	type said struct {
		kernel bool
		effect gpu.Effect
		after  time.Duration
		told   bool
	}
	for name, all := range map[string][]said{
		"NVML, then the kernel":           {{false, gpu.EffectWarn, 0, true}, {true, gpu.EffectWarn, time.Second, false}},
		"the kernel, then NVML":           {{true, gpu.EffectWarn, 0, true}, {false, gpu.EffectWarn, time.Second, false}},
		"the kernel knows worse":          {{false, gpu.EffectWarn, 0, true}, {true, gpu.EffectFatal, time.Second, true}},
		"the kernel has known worse":      {{true, gpu.EffectFatal, 0, true}, {false, gpu.EffectWarn, time.Second, false}},
		"the kernel, of another time":     {{false, gpu.EffectWarn, 0, true}, {true, gpu.EffectWarn, time.Minute, true}},
		"NVML twice":                      {{false, gpu.EffectWarn, 0, true}, {false, gpu.EffectWarn, time.Second, true}},
		"both twice, one after the other": {{false, gpu.EffectApp, 0, true}, {true, gpu.EffectApp, 0, false}, {false, gpu.EffectApp, time.Second, true}, {true, gpu.EffectApp, 0, false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := 0
				h := eventMerger{lastReports: map[eventKey]eventReport{}, emit: func(gpu.ClassifiedEvent) { told++ }}
				for i, s := range all {
					time.Sleep(s.after)
					before := told
					h.passEvent(gpu.ClassifiedEvent{Event: gpu.Event{Kind: gpu.KindXid, Xid: 145, Bus: "0000:3b:00.0"}, EventVerdict: gpu.EventVerdict{Effect: s.effect}}, s.kernel)
					if (told > before) != s.told {
						t.Errorf("the word %d: told: %t", i, told > before)
					}
				}
				h.passEvent(gpu.ClassifiedEvent{Event: gpu.Event{Kind: gpu.KindXid, Xid: 145, Bus: "0000:5e:00.0"}}, true)
				if told == 0 {
					t.Error("of another GPU nothing is told")
				}
			})
		})
	}
}

// TestWatchHearsTheKernel verifies that an Xid that only the kernel reports is passed on with its
// severity.
func TestWatchHearsTheKernel(t *testing.T) {
	root := t.TempDir()
	log := filepath.Join(root, "dev/kmsg")
	if err := errors.Join(os.MkdirAll(filepath.Dir(log), 0o755), unix.Mkfifo(log, 0o600)); err != nil {
		t.Fatal(err)
	}
	kernel, err := os.OpenFile(log, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	g := &GPUs{Prober: &silentGPUs{}, Expect: fitness.Expectation{Count: -1}, LibraryNamed: true, Root: root, Table: gpu.BuiltinXidTable()}
	g.Inspect(t.Context(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got gpu.ClassifiedEvent
	err = g.Watch(ctx, func(int) {
		const line = "4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)\n"
		if _, err := kernel.WriteString(line); err != nil {
			t.Error(err)
		}
	}, func(e gpu.ClassifiedEvent) {
		got = e
		cancel()
	})
	if err != nil || got.Effect != gpu.EffectFatal || got.GPU != 1 || got.Xid != 149 {
		t.Errorf("heard %+v, %v", got, err)
	}
}

// silentGPUs is a Driver of two GPUs that reports no events.
type silentGPUs struct{ twoGPUs }

func (*silentGPUs) Probe(context.Context, func(gpu.Progress)) (gpu.Facts, error) {
	return gpu.Facts{Version: gpu.FactsVersion, Init: gpu.Success, GPUs: []gpu.GPU{
		{Index: 0, Handle: gpu.Success, Bus: known("0000:1b:00.0")}, {Index: 1, Handle: gpu.Success, Bus: known("0000:3b:00.0")},
	}}, nil
}

func (*silentGPUs) Watch(ctx context.Context, ready func(int), _ func(gpu.Event)) error {
	ready(2)
	<-ctx.Done()
	return nil
}
