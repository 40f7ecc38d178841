package nvml_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/test/nvml"
)

// program is a bringupd built with cgo, without which there is nothing to test.
var program string

// whole is a library with all functions.
var whole nvml.Fake

// TestMain builds bringupd and the stand-in library.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "nvml-*")
	if err == nil {
		program = filepath.Join(dir, "bringupd")
		build := exec.Command("go", "build", "-tags", "netgo,osusergo", "-o", program,
			"github.com/bringupd/bringupd/cmd/bringupd")
		build.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, failed := build.CombinedOutput(); failed != nil {
			err = fmt.Errorf("cannot build bringupd: %v: %s", failed, out)
		}
	}
	if err == nil {
		whole, err = nvml.Build(dir)
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// saying returns a library with the given answers for this host.
func saying(t *testing.T, lines ...string) nvml.Fake {
	t.Helper()
	fake := whole.In(t.TempDir())
	if err := fake.Answer(host(t), lines...); err != nil {
		t.Fatal(err)
	}
	return fake
}

// lacking returns a library without the given functions.
func lacking(t *testing.T, functions ...string) nvml.Fake {
	t.Helper()
	fake, err := nvml.Build(t.TempDir(), functions...)
	if err != nil {
		t.Fatal(err)
	}
	return fake
}

func host(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ = strings.Cut(name, ".")
	return name
}

// probe runs the child process that queries the library.
func probe(t *testing.T, fake nvml.Fake, deadline time.Duration) gpu.Facts {
	t.Helper()
	facts, err := gpu.Child{
		Program: program, Timeout: deadline, Env: fake.Environ(),
	}.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return facts
}

// patience is far longer than a successful probe takes.
const patience = time.Minute

// TestHealthy checks eight healthy H100 GPUs: every query is answered, except for those about GPUs
// before Ampere.
func TestHealthy(t *testing.T) {
	facts := probe(t, saying(t), patience)
	if facts.Init != gpu.Success || len(facts.GPUs) != 8 || len(facts.Pairs) != 8*7/2 {
		t.Fatalf("the facts are %+v", facts)
	}
	for i, g := range facts.GPUs {
		for _, field := range reflect.VisibleFields(reflect.TypeFor[gpu.GPU]()) {
			if field.Anonymous || field.Type.Kind() != reflect.Struct {
				continue
			}
			reading := reflect.ValueOf(g).FieldByIndex(field.Index)
			lacks := reading.FieldByName("Value").IsNil()
			if older := field.Name == "Retired" || field.Name == "Numa"; lacks != older ||
				lacks && reading.FieldByName("Reason").String() != string(gpu.NotSupported) {
				t.Errorf("GPU %d: %s is %+v", i, field.Name, reading)
			}
		}
		if len(g.Links) != 18 {
			t.Errorf("GPU %d has %d links", i, len(g.Links))
		}
	}
	g := facts.GPUs[2]
	if bus, _ := g.Bus.Get(); bus != "0000:52:00.0" {
		t.Errorf("GPU 2 is at %q", bus)
	}
	if fabric, _ := g.Fabric.Get(); fabric.State != 3 || fabric.Status != gpu.Success ||
		fabric.Summary == nil || *fabric.Summary != 1 {
		t.Errorf("the fabric of GPU 2 is %+v", fabric)
	}
}

// TestTold checks that the library's answers about a GPU are in the facts about that GPU.
func TestTold(t *testing.T) {
	for _, tc := range []struct {
		name string
		line string
		seen func(gpu.Facts) bool
	}{
		{"fewer GPUs", "gpus 7", func(f gpu.Facts) bool {
			return len(f.GPUs) == 7 && len(f.Pairs) == 7*6/2
		}},
		{"no driver", "init 9", func(f gpu.Facts) bool {
			return f.Init == gpu.DriverNotLoaded && f.GPUs == nil
		}},
		{"another library", "init 18", func(f gpu.Facts) bool {
			return f.Init == gpu.LibRMVersionMismatch
		}},
		{"a lost GPU", "gpu 3 handle 15", func(f gpu.Facts) bool {
			lost := func(g gpu.GPU) bool { return g.Handle == gpu.GPUIsLost }
			return len(f.GPUs) == 8 && slices.IndexFunc(f.GPUs, lost) == 3 &&
				f.GPUs[4].Handle == gpu.Success && len(f.Pairs) == 7*6/2
		}},
		{"lost under way", "gpu 3 return nvmlDeviceGetUUID 15", func(f gpu.Facts) bool {
			return f.GPUs[3].UUID.Reason == gpu.GPUIsLost && f.GPUs[3].Name.Value != nil
		}},
		{"a failed remap", "gpu 2 remap_failed 1",
			func(f gpu.Facts) bool { r, _ := f.GPUs[2].Remapped.Get(); return r.Failed }},
		{"a reset is needed", "gpu 1 recovery 1",
			func(f gpu.Facts) bool { r, _ := f.GPUs[1].Recovery.Get(); return r == 1 }},
		{"no answer to the field", "gpu 1 recovery_return 3", func(f gpu.Facts) bool {
			return f.GPUs[1].Recovery.Reason == gpu.NotSupported
		}},
		{"the fabric is not ready", "gpu * fabric_state 2", func(f gpu.Facts) bool {
			return !slices.ContainsFunc(f.GPUs,
				func(g gpu.GPU) bool { fabric, _ := g.Fabric.Get(); return fabric.State != 2 })
		}},
		{"a fabric before its third form", "gpu * fabric_form 2", func(f gpu.Facts) bool {
			fabric, ok := f.GPUs[0].Fabric.Get()
			return ok && fabric.State == 3 && fabric.Mask != nil && fabric.Summary == nil
		}},
		{"a link down", "gpu 5 link_down 17", func(f gpu.Facts) bool {
			active, ok := f.GPUs[5].Links[17].Active.Get()
			return ok && !active && len(f.GPUs[5].Links) == 18
		}},
		{"no way over NVLink", "gpu 7 p2p 5",
			func(f gpu.Facts) bool { s, _ := f.Pairs[len(f.Pairs)-1].Status.Get(); return s == 5 }},
		{"a process", "gpu 6 pid 4711", func(f gpu.Facts) bool {
			p, _ := f.GPUs[6].Processes.Get()
			return len(p) == 1 && p[0].PID == 4711
		}},
		{"another model", "gpu * name NVIDIA A100-SXM4-80GB", func(f gpu.Facts) bool {
			name, _ := f.GPUs[0].Name.Get()
			return name == "NVIDIA A100-SXM4-80GB"
		}},
		{"errors in SRAM", "gpu 0 sram_uncorrected 2",
			func(f gpu.Facts) bool { s, _ := f.GPUs[0].SRAM.Get(); return s.Uncorrected == 2 }},
		{"MIG", "gpu 0 mig 1\ngpu 0 mig_instances 2", func(f gpu.Facts) bool {
			return len(f.GPUs[0].MIGInstances) == 2 && f.GPUs[1].MIGInstances == nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if facts := probe(t, saying(t, tc.line), patience); !tc.seen(facts) {
				t.Errorf("after %q the facts are %+v", tc.line, facts)
			}
		})
	}
}

// TestHang checks that a call which never returns ends the probe, but does not block its caller,
// and that the report names the call for every GPU.
func TestHang(t *testing.T) {
	const call = "nvmlDeviceGetVbiosVersion of GPU "
	all := call + strings.Join([]string{"0", "1", "2", "3", "4", "5", "6", "7"}, ", "+call)
	for line, said := range map[string]string{
		"hang nvmlInit":                        "nvmlInit",
		"hang nvmlDeviceGetCount":              "nvmlDeviceGetCount",
		"gpu 5 hang nvmlDeviceGetVbiosVersion": call + "5",
		"gpu * hang nvmlDeviceGetVbiosVersion": all,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			facts := probe(t, saying(t, line), 3*time.Second)
			if facts.Init != gpu.DriverUnresponsive || !strings.Contains(facts.Detail, said) {
				t.Errorf("the facts are %+v, want a %s that names %q", facts,
					gpu.DriverUnresponsive, said)
			}
		})
	}
}

// TestOldLibrary checks that a library without newer functions answers all other queries, and that
// the lack of an essential function only ends the probe.
func TestOldLibrary(t *testing.T) {
	t.Run("of an old driver", func(t *testing.T) {
		facts := probe(t, lacking(t, "nvmlDeviceGetGpuFabricInfoV",
			"nvmlDeviceGetSramEccErrorStatus",
			"nvmlDeviceGetMemoryInfo_v2",
			"nvmlDeviceGetNumaNodeId"), patience)
		if facts.Init != gpu.Success || len(facts.GPUs) != 8 {
			t.Fatalf("the facts are %+v", facts)
		}
		g := facts.GPUs[0]
		if g.Numa.Reason != gpu.FunctionNotFound {
			t.Errorf("the NUMA node is %+v, want %s", g.Numa, gpu.FunctionNotFound)
		}
		if fabric, ok := g.Fabric.Get(); !ok || fabric.State != 3 || fabric.Summary != nil {
			t.Errorf("the fabric is %+v, want what the older function says", g.Fabric)
		}
		if g.SRAM.Value == nil || g.Memory.Value == nil {
			t.Errorf("what older functions could tell is missing: %+v", g)
		}
	})
	t.Run("not NVML", func(t *testing.T) {
		facts := probe(t, lacking(t, "nvmlInit_v2"), patience)
		if facts.Init != gpu.ProbeDied || !strings.Contains(facts.Detail, "nvmlInit") {
			t.Errorf("the facts are %+v, want %s naming the function", facts, gpu.ProbeDied)
		}
	})
	t.Run("not there", func(t *testing.T) {
		facts := probe(t, nvml.Fake{Library: filepath.Join(t.TempDir(), "libnvidia-ml.so.1")},
			patience)
		if facts.Init != gpu.LibraryNotFound {
			t.Errorf("the facts are %+v, want %s", facts, gpu.LibraryNotFound)
		}
	})
}
