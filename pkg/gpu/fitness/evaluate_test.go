package fitness

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

var update = flag.Bool("update", false, "write the findings in testdata anew")

// report is facts, what was expected of them, and what is to come of it.
type report struct {
	name   string // of the golden file
	facts  string // of testdata/facts; name where empty
	change func(*gpu.Facts)
	want   func(*Expect)
	// says are the findings that are neither Pass nor Skip: "gpu.remap 2 FAIL".
	says string
}

func one(i int, change func(*gpu.GPU)) func(*gpu.Facts) {
	return func(f *gpu.Facts) { change(&f.GPUs[i]) }
}

func each(change func(*gpu.GPU)) func(*gpu.Facts) {
	return func(f *gpu.Facts) {
		for i := range f.GPUs {
			change(&f.GPUs[i])
		}
	}
}

func expect(n int) func(*Expect) {
	return func(e *Expect) { e.Count, e.CountFrom = n, "--gpus-per-node" }
}

func visible(t *testing.T, list string) func(*Expect) {
	return func(e *Expect) {
		parsed, err := ParseExpected(-1, "", []string{"CUDA_VISIBLE_DEVICES=" + list})
		if err != nil {
			t.Fatal(err)
		}
		e.Count, e.CountFrom, e.Visible = parsed.Count, parsed.CountFrom, parsed.Visible
	}
}

func allOf(a, b func(*Expect)) func(*Expect) { return func(e *Expect) { a(e); b(e) } }

func mode(m check.Mode) func(*Expect) { return func(e *Expect) { e.Mode = m } }

func signs(signs ...string) func(*Expect) { return func(e *Expect) { e.Signs = signs } }

func fabric(change func(*gpu.Fabric)) func(*gpu.GPU) {
	return func(g *gpu.GPU) {
		f := *g.Fabric.Value
		change(&f)
		g.Fabric = read(f)
	}
}

func mask(set, clear uint32) func(*gpu.GPU) {
	return fabric(func(f *gpu.Fabric) { m := *f.Mask&^clear | set; f.Mask = &m })
}

func handle(why gpu.Return) func(*gpu.Facts) {
	return one(3, func(g *gpu.GPU) { *g = gpu.GPU{Index: 3, Handle: why, Bus: g.Bus} })
}

func initOf(why gpu.Return) func(*gpu.Facts) {
	return func(f *gpu.Facts) { *f = gpu.Facts{Version: 1, Init: why, Library: "libnvidia-ml.so.1"} }
}

// pair changes what NVML says of two GPUs.
func pair(status int, ends ...int) func(*gpu.Facts) {
	return func(f *gpu.Facts) {
		for i, p := range f.Pairs {
			if slices.Contains(ends, p.A) && (len(ends) == 1 || slices.Contains(ends, p.B)) || len(ends) == 1 && slices.Contains(ends, p.B) {
				f.Pairs[i].Status = read(status)
			}
		}
	}
}

func down(links ...int) func(*gpu.GPU) {
	return func(g *gpu.GPU) {
		for _, l := range links {
			g.Links[l].Active = read(false)
		}
	}
}

func slow(reasons ...uint64) func(*gpu.Facts) {
	return one(6, func(g *gpu.GPU) { g.Slowed = read(reasons) })
}

func procs(used uint64, list ...gpu.Process) func(*gpu.Facts) {
	return one(4, func(g *gpu.GPU) {
		g.Procs = read(list)
		memory := *g.Memory.Value
		memory.Used = used
		g.Memory = read(memory)
	})
}

func environ(list ...string) func(*Expect) { return func(e *Expect) { e.Environ = list } }

const (
	mib  = 1 << 20
	gpu2 = "GPU-5d1e0a02-1c5a-4b52-9d3e-7a60c41f0002"
)

// reports has each row of what is checked, good and bad.
func reports(t *testing.T) []report {
	sram := func(s gpu.SRAM) func(*gpu.Facts) { return one(2, func(g *gpu.GPU) { g.SRAM = read(s) }) }
	remap := func(r gpu.Remapped) func(*gpu.Facts) { return one(2, func(g *gpu.GPU) { g.Remapped = read(r) }) }
	pcie := func(p gpu.PCIe, load int) func(*gpu.Facts) {
		return one(1, func(g *gpu.GPU) { g.PCIe, g.Load = read(p), read(load) })
	}
	mig := func(current, pending bool) func(*gpu.Facts) {
		return one(0, func(g *gpu.GPU) { g.MIG = read(gpu.Switch{Current: current, Pending: pending}) })
	}
	idle := func(e *Expect) { e.Count, e.CountFrom = -1, "" }
	none := func(e *Expect) { e.Count, e.CountFrom = 0, "SLURM_GPUS_ON_NODE" }
	return []report{
		{name: "h100"},
		{name: "gb200", want: expect(4)},
		{name: "v100"},
		{name: "l40s", want: expect(4)},
		{name: "a100-bridges", want: expect(4)},
		{name: "a100-mig", want: expect(9)},
		{name: "h100-driver535"},
		{name: "geforce", want: expect(1), says: "gpu.persistence 0 WARN"},
		{name: "mixed", want: expect(3)},

		{name: "no-library", says: "gpu.nvml FAIL"},
		{name: "no-library-auto", facts: "no-library", want: idle},
		{name: "no-library-none", facts: "no-library", want: allOf(none, signs("device file /dev/nvidia0"))},
		{name: "no-library-require", facts: "no-library", want: allOf(idle, mode(check.ModeRequire)), says: "gpu.nvml FAIL"},
		{name: "no-library-none-require", facts: "no-library", want: allOf(none, mode(check.ModeRequire)), says: "gpu.nvml FAIL"},
		{name: "no-library-bus", facts: "no-library", want: allOf(idle, signs("PCI device 0000:3b:00.0")), says: "gpu.nvml WARN"},
		{name: "no-library-bus-expected", facts: "no-library", want: signs("PCI device 0000:3b:00.0"), says: "gpu.nvml FAIL"},
		{name: "no-library-container", facts: "no-library", want: signs("device file /dev/nvidia0", "device file /dev/nvidiactl", "PCI device 0000:3b:00.0"), says: "gpu.nvml FAIL"},
		{name: "no-driver", says: "gpu.nvml WAIT"},
		{name: "no-driver-auto", facts: "no-driver", want: idle},
		{name: "no-driver-bus", facts: "no-driver", want: allOf(idle, signs("PCI device 0000:3b:00.0")), says: "gpu.nvml WARN"},
		{name: "unresponsive", says: "gpu.driver_unresponsive FAIL"},
		{name: "unresponsive-none", facts: "unresponsive", want: none, says: "gpu.driver_unresponsive WARN"},
		{name: "mismatch", facts: "h100", change: initOf(gpu.LibRMVersion), says: "gpu.nvml FAIL"},
		{name: "mismatch-auto", facts: "h100", change: initOf(gpu.LibRMVersion), want: idle, says: "gpu.nvml FAIL"},
		{name: "mismatch-none", facts: "h100", change: initOf(gpu.LibRMVersion), want: none},
		{name: "cgroup", facts: "h100", change: initOf(gpu.OperatingSystem), says: "gpu.nvml FAIL"},
		{name: "cgroup-auto", facts: "h100", change: initOf(gpu.OperatingSystem), want: idle, says: "gpu.nvml WARN"},
		{name: "init-unknown", facts: "h100", change: initOf(gpu.UnknownError), says: "gpu.nvml FAIL"},
		{name: "init-timeout", facts: "h100", change: initOf("TIMEOUT"), says: "gpu.nvml UNKNOWN"},
		{name: "probe-died", facts: "h100", change: func(f *gpu.Facts) { initOf(gpu.ProbeDied)(f); f.Detail = "exit status 127" }, says: "gpu.nvml UNKNOWN"},
		{name: "no-cgo", facts: "h100", change: initOf(gpu.NoCgo), says: "gpu.nvml UNKNOWN"},
		{name: "no-cgo-auto", facts: "h100", change: initOf(gpu.NoCgo), want: idle},

		{name: "h100-seven", says: "gpu.count FAIL"},
		{name: "h100-lost", says: "gpu.count 3 FAIL"},
		{name: "reset-required", facts: "h100", change: handle(gpu.ResetRequired), says: "gpu.count 3 FAIL"},
		{name: "handle-unknown", facts: "h100", change: handle(gpu.UnknownError), says: "gpu.count 3 FAIL"},
		{name: "lost-late", facts: "h100", change: one(3, func(g *gpu.GPU) { g.Recovery = unread[int](gpu.GPUIsLost) }), says: "gpu.count 3 FAIL"},
		{name: "no-permission", facts: "h100", change: handle(gpu.NoPermission), want: expect(7)},
		{name: "no-permission-short", facts: "h100", change: handle(gpu.NoPermission), says: "gpu.count FAIL"},
		{name: "count-unread", facts: "h100", change: func(f *gpu.Facts) { f.Count = unread[int]("TIMEOUT") }, says: "gpu.count UNKNOWN"},
		{name: "count-other", facts: "h100", change: func(f *gpu.Facts) { f.Count = read(9) }, says: "gpu.count UNKNOWN"},
		{name: "count-auto", facts: "h100", want: idle},
		{name: "count-none", facts: "h100", want: none},
		{name: "no-gpu-auto", facts: "h100", change: func(f *gpu.Facts) { f.Count, f.GPUs, f.Pairs = read(0), nil, nil }, want: idle},
		{name: "no-gpu-require", facts: "h100", change: func(f *gpu.Facts) { f.Count, f.GPUs, f.Pairs = read(0), nil, nil }, want: allOf(idle, mode(check.ModeRequire)), says: "gpu.count FAIL"},
		{name: "listed", facts: "h100-lost", want: visible(t, "0,1,4,5")},
		{name: "listed-lost", facts: "h100-lost", want: visible(t, "2,3"), says: "gpu.count 3 FAIL"},
		{name: "listed-uuid", facts: "h100-lost", want: visible(t, gpu2)},
		{name: "listed-uuid-lost", facts: "h100-lost", want: visible(t, "GPU-5d1e0a03"), says: "gpu.count 3 FAIL, gpu.count UNKNOWN"},
		{name: "listed-beyond", facts: "h100", want: visible(t, "7,8"), says: "gpu.count FAIL"},
		{name: "listed-elsewhere", facts: "h100", want: visible(t, "GPU-ffffffff"), says: "gpu.count FAIL"},
		{name: "listed-fewer", facts: "h100", want: allOf(visible(t, "0,1"), expect(4)), says: "gpu.count FAIL"},
		{name: "listed-mig", facts: "a100-mig", want: visible(t, "MIG-8a1b0000,MIG-8a1b0003-33aa-5c31-8e0b-0d1f2c3b4a03")},
		{name: "listed-mig-old", facts: "a100-mig", want: visible(t, "MIG-"+strings.Replace(gpu2, "5d1e0a02", "5d1e0a00", 1)[:len(gpu2)-1]+"0/7/0")},
		{name: "listed-mixed", facts: "mixed", want: visible(t, "0,1"), says: "gpu.count WARN"},
		{name: "listed-mixed-ordered", facts: "mixed", want: allOf(visible(t, "0,1"), func(e *Expect) { e.PCIOrder = true })},

		{name: "recovery-reset", facts: "h100", change: one(5, func(g *gpu.GPU) { g.Recovery = read(1) }), says: "gpu.recovery 5 FAIL"},
		{name: "recovery-imex", facts: "h100", change: one(5, func(g *gpu.GPU) { g.Recovery = read(5) }), says: "gpu.recovery 5 FAIL"},
		{name: "recovery-other", facts: "h100", change: one(5, func(g *gpu.GPU) { g.Recovery = read(8) }), says: "gpu.recovery 5 FAIL"},
		{name: "remap-failed", facts: "h100", change: remap(gpu.Remapped{Uncorrected: 1, Failed: true}), says: "gpu.remap 2 FAIL"},
		{name: "remap-pending", facts: "h100", change: remap(gpu.Remapped{Uncorrected: 1, Pending: true}), says: "gpu.remap 2 WARN"},
		{name: "remap-many", facts: "h100", change: remap(gpu.Remapped{Uncorrected: 512}), says: "gpu.remap 2 WARN"},
		{name: "remap-some", facts: "h100", change: remap(gpu.Remapped{Corrected: 700, Uncorrected: 511})},
		{name: "sram-uncorrected", facts: "h100", change: sram(gpu.SRAM{Errors: gpu.Errors{Uncorrected: 1}}), says: "gpu.ecc_unc 2 FAIL"},
		{name: "sram-threshold", facts: "h100", change: sram(gpu.SRAM{ThresholdExceeded: true}), says: "gpu.ecc_unc 2 FAIL"},
		{name: "sram-corrected", facts: "h100", change: sram(gpu.SRAM{Errors: gpu.Errors{Corrected: 10_000}}), says: "gpu.ecc_corr 2 WARN"},
		{name: "dram-uncorrected", facts: "h100", change: one(2, func(g *gpu.GPU) { g.DRAM = read(gpu.Errors{Uncorrected: 2}) }), says: "gpu.ecc_unc 2 WARN"},
		{name: "dram-corrected", facts: "h100", change: one(2, func(g *gpu.GPU) { g.DRAM = read(gpu.Errors{Corrected: 50_000_000}) }), says: "gpu.ecc_corr 2 WARN"},
		{name: "dram-corrected-few", facts: "h100", change: one(2, func(g *gpu.GPU) { g.DRAM = read(gpu.Errors{Corrected: 49_999_999}) })},
		{name: "ecc-off", facts: "h100", change: one(2, func(g *gpu.GPU) { g.ECC = read(gpu.Switch{Pending: true}) }), says: "gpu.ecc_corr 2 WARN"},
		{name: "v100-retired", says: "gpu.retired 2 FAIL, gpu.retired 5 FAIL, gpu.retired 6 WARN"},

		{name: "h100-joining", says: "gpu.fabric 0 WAIT, gpu.fabric 1 WAIT, gpu.fabric 2 WAIT, gpu.fabric 3 WAIT, gpu.fabric 4 WAIT, gpu.fabric 5 WAIT, gpu.fabric 6 WAIT, gpu.fabric 7 WAIT, " +
			"gpu.nvlink 0 WAIT, gpu.nvlink 1 WAIT, gpu.nvlink 2 WAIT, gpu.nvlink 3 WAIT, gpu.nvlink 4 WAIT, gpu.nvlink 5 WAIT, gpu.nvlink 6 WAIT, gpu.nvlink 7 WAIT"},
		{name: "fabric-failed", facts: "h100", change: one(1, fabric(func(f *gpu.Fabric) { f.Status = "NOT_READY" })), says: "gpu.fabric 1 FAIL"},
		{name: "fabric-bandwidth", facts: "h100", change: one(1, mask(1, 3)), says: "gpu.fabric 1 FAIL"},
		{name: "fabric-recovers", facts: "h100", change: one(1, mask(1<<2, 3<<2)), says: "gpu.fabric 1 WAIT"},
		{name: "fabric-route", facts: "h100", change: one(1, mask(1<<4, 3<<4)), says: "gpu.fabric 1 FAIL"},
		{name: "fabric-time-out", facts: "h100", change: one(1, mask(1<<6, 3<<6)), says: "gpu.fabric 1 WAIT"},
		{name: "fabric-configuration", facts: "h100", change: one(1, mask(5<<8, 15<<8)), says: "gpu.fabric 1 FAIL"},
		{name: "fabric-mask-new", facts: "h100", change: one(1, mask(15<<8, 0)), says: "gpu.fabric 1 UNKNOWN"},
		{name: "fabric-unhealthy", facts: "gb200", change: one(1, fabric(func(f *gpu.Fabric) { f.Summary = new(2) })), want: expect(4), says: "gpu.fabric 1 FAIL"},
		{name: "fabric-limited", facts: "gb200", change: one(1, fabric(func(f *gpu.Fabric) { f.Summary = new(3) })), want: expect(4), says: "gpu.fabric 1 WARN"},
		{name: "fabric-clique", facts: "gb200", change: one(1, fabric(func(f *gpu.Fabric) { f.Clique = 2 })), want: expect(4), says: "gpu.fabric 1 WARN"},
		{name: "fabric-state-new", facts: "h100", change: one(1, fabric(func(f *gpu.Fabric) { f.State = 4 })), says: "gpu.fabric 1 UNKNOWN"},
		{name: "link-down", facts: "h100", change: one(3, down(4, 11)), says: "gpu.nvlink 3 FAIL"},
		{name: "links-down", facts: "h100", change: each(down(0)), says: "gpu.nvlink 0 FAIL, gpu.nvlink 1 FAIL, gpu.nvlink 2 FAIL, gpu.nvlink 3 FAIL, gpu.nvlink 4 FAIL, gpu.nvlink 5 FAIL, gpu.nvlink 6 FAIL, gpu.nvlink 7 FAIL"},
		{name: "link-gone", facts: "h100", change: one(3, func(g *gpu.GPU) { g.Links = g.Links[:17] }), says: "gpu.nvlink 3 FAIL"},
		{name: "bridge-gone", facts: "a100-bridges", change: each(func(g *gpu.GPU) { down(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)(g) }), want: expect(4)},
		{name: "bridge-loose", facts: "a100-bridges", change: one(0, down(0, 1, 2, 3)), want: expect(4), says: "gpu.nvlink 0 WARN"},
		{name: "p2p-one", facts: "h100", change: pair(5, 3), says: "gpu.nvlink 3 FAIL"},
		{name: "p2p-pair", facts: "h100", change: pair(5, 2, 5), says: "gpu.nvlink 2 FAIL, gpu.nvlink 5 FAIL"},
		{name: "p2p-mesh", facts: "v100", change: pair(5, 0, 3), says: "gpu.nvlink 0 WARN, gpu.nvlink 3 WARN"},
		{name: "p2p-bridges", facts: "a100-bridges", change: func(f *gpu.Facts) {
			for i := range f.Pairs {
				f.Pairs[i].Status = read(5)
			}
		}, want: expect(4), says: "gpu.nvlink 0 WARN, gpu.nvlink 1 WARN, gpu.nvlink 2 WARN, gpu.nvlink 3 WARN"},

		{name: "p2p-none", facts: "h100", change: func(f *gpu.Facts) {
			for i := range f.Pairs {
				f.Pairs[i].Status = read(5)
			}
		}, says: "gpu.nvlink 0 FAIL, gpu.nvlink 1 FAIL, gpu.nvlink 2 FAIL, gpu.nvlink 3 FAIL, gpu.nvlink 4 FAIL, gpu.nvlink 5 FAIL, gpu.nvlink 6 FAIL, gpu.nvlink 7 FAIL"},
		{name: "link-down-v100", facts: "v100", change: one(0, down(5)), says: "gpu.nvlink 0 FAIL"},

		{name: "hot", facts: "h100", change: slow(0x48, 0x40, 0x41), says: "gpu.clocks 6 WARN"},
		{name: "hot-at-times", facts: "h100", change: slow(0x48, 0x01, 0x48)},
		{name: "power-brake", facts: "h100", change: slow(0x88, 0x88, 0x88), says: "gpu.clocks 6 WARN"},
		{name: "slow", facts: "h100", change: slow(0x8, 0x8, 0x8), says: "gpu.clocks 6 WARN"},
		{name: "power-cap", facts: "h100", change: slow(0x4, 0x4, 0x5)},
		{name: "hot-one-look", facts: "h100", change: slow(0x48)},
		{name: "pcie-x8", facts: "h100", change: pcie(gpu.PCIe{Width: 8, MaxWidth: 16, Gen: 5, MaxGen: 5}, 0), says: "gpu.pcie 1 FAIL"},
		{name: "pcie-slow", facts: "h100", change: pcie(gpu.PCIe{Width: 16, MaxWidth: 16, Gen: 3, MaxGen: 5}, 40), says: "gpu.pcie 1 WARN"},
		{name: "pcie-idle", facts: "h100", change: pcie(gpu.PCIe{Width: 16, MaxWidth: 16, Gen: 1, MaxGen: 5}, 0)},
		{name: "pcie-nothing", facts: "h100", change: pcie(gpu.PCIe{}, 0), says: "gpu.pcie 1 UNKNOWN"},

		{name: "persistence-off", facts: "h100", change: one(7, func(g *gpu.GPU) { g.Persist = read(false) }), says: "gpu.persistence 7 WARN"},
		{name: "mig-pending", facts: "h100", change: mig(false, true), says: "gpu.mig 0 FAIL"},
		{name: "mig-empty", facts: "h100", change: mig(true, true), want: expect(7), says: "gpu.mig 0 FAIL"},
		{name: "mig-whole", facts: "a100-mig", want: allOf(expect(2), func(e *Expect) { e.WholeGPUs = true }), says: "gpu.mig 0 FAIL, gpu.mig 1 FAIL"},
		{name: "compute-prohibited", facts: "h100", change: one(0, func(g *gpu.GPU) { g.Compute = read(2) }), says: "gpu.compute_mode 0 FAIL"},
		{name: "compute-exclusive", facts: "h100", change: one(0, func(g *gpu.GPU) { g.Compute = read(3) }), says: "gpu.compute_mode 0 WARN"},
		{name: "compute-new", facts: "h100", change: one(0, func(g *gpu.GPU) { g.Compute = read(4) }), says: "gpu.compute_mode 0 UNKNOWN"},
		{name: "busy-process", facts: "h100", change: procs(70000*mib, gpu.Process{PID: 4711, Used: 69000 * mib, Name: "python3"}), says: "gpu.busy 4 WAIT"},
		{name: "busy-memory", facts: "h100", change: procs(513 * mib), says: "gpu.busy 4 WAIT"},
		{name: "busy-little", facts: "h100", change: procs(512 * mib)},
		{name: "busy-stale", facts: "h100", change: procs(mib, gpu.Process{PID: 4711}), says: "gpu.busy 4 WARN"},
		{name: "busy-elsewhere", facts: "h100", change: procs(2000*mib, gpu.Process{PID: 4711, Unknown: true}), says: "gpu.busy 4 WAIT"},
		{name: "busy-mps", facts: "h100", change: procs(30*mib, gpu.Process{PID: 4711, Used: 30 * mib, Name: "nvidia-cuda-mps"})},
		{name: "busy-many", facts: "h100", change: procs(mib, gpu.Process{PID: 1, Used: mib, Name: "a"}, gpu.Process{PID: 2, Used: mib, Name: "b"}, gpu.Process{PID: 3, Used: mib, Name: "c"}, gpu.Process{PID: 4, Used: mib, Name: "d"}, gpu.Process{PID: 5, Used: mib, Name: "e"}), says: "gpu.busy 4 WAIT"},
		{name: "busy-other-job", facts: "h100", change: procs(70000*mib, gpu.Process{PID: 4711, Used: 69000 * mib, Name: "python3"}), want: expect(4), says: "gpu.busy 4 WARN"},
		{name: "env-injection", facts: "h100", want: environ("HOME=/root", "CUDA_INJECTION64_PATH=/opt/nsys/libToolsInjection64.so"), says: "gpu.env WARN"},
		{name: "env-zero", facts: "h100", want: environ("CUDA_DEVICE_WAITS_ON_EXCEPTION=0", "CUDA_PROFILE=")},
		{name: "env-unknown", facts: "h100", want: func(e *Expect) { e.Environ = nil }},
	}
}

// TestReports evaluates each report. What is said of a changed one is compared
// but for what is said of the unchanged one as well.
func TestReports(t *testing.T) {
	names := make(map[string]bool)
	for _, r := range reports(t) {
		t.Run(r.name, func(t *testing.T) {
			if names[r.name] {
				t.Fatal("a second report of this name")
			}
			names[r.name] = true
			file := r.facts
			if file == "" {
				file = r.name
			}
			want := Expect{Count: 8, CountFrom: "SLURM_GPUS_ON_NODE", Mode: check.ModeAuto, Environ: []string{"HOME=/root"}}
			var usual []check.Finding
			f := load(t, file)
			if r.change != nil {
				usual = Evaluate(f, want)
				r.change(&f)
			}
			if r.want != nil {
				usual = Evaluate(load(t, file), want)
				r.want(&want)
			}
			if r.facts == "" {
				usual = nil
			}
			findings := Evaluate(f, want)
			if got := summary(findings); got != r.says {
				t.Errorf("got  %s\nwant %s", got, r.says)
			}
			wantComplete(t, findings)
			golden(t, r.name, slices.DeleteFunc(findings, func(f check.Finding) bool {
				return slices.ContainsFunc(usual, func(u check.Finding) bool { return cmp.Equal(u, f) })
			}))
		})
	}
}

// The limits of retired pages are the vendor's: as many are too many.
func TestRetiredPages(t *testing.T) {
	for _, tc := range []struct {
		single, double int
		says           string
	}{
		{14, 0, ""},
		{10, 5, "WARN"},
		{60, 2, "WARN"},
		{60, 3, "FAIL"},
		{0, 64, "FAIL"},
	} {
		var says string
		e := exam{gpu: gpu.GPU{Health: gpu.Health{Retired: read(gpu.Retired{SingleBit: tc.single, DoubleBit: tc.double})}}}
		judgeRetired(&e)
		for _, f := range e.Found {
			says += fmt.Sprint(f.Verdict)
		}
		if says != tc.says {
			t.Errorf("%d and %d pages: %q, want %q", tc.single, tc.double, says, tc.says)
		}
	}
}

// summary names the findings that tell of something.
func summary(findings []check.Finding) string {
	var parts []string
	for _, f := range findings {
		switch {
		case f.Verdict == check.Pass || f.Verdict == check.Skip:
		case f.Device == nil:
			parts = append(parts, fmt.Sprintf("%s %s", f.ID, f.Verdict))
		default:
			parts = append(parts, fmt.Sprintf("%s %d %s", f.ID, f.Device.Index, f.Verdict))
		}
	}
	return strings.Join(parts, ", ")
}

var verdicts = []check.Verdict{check.Pass, check.Skip, check.Warn, check.Unknown, check.Wait, check.Fail}

// wantComplete tells whether findings say all that they should.
func wantComplete(t *testing.T, findings []check.Finding) {
	t.Helper()
	passed := make(map[string]int)
	for _, f := range findings {
		wrong := f.Verdict != check.Pass && f.Verdict != check.Skip
		if !wrong {
			passed[f.ID]++
		}
		if f.ID == "" || f.Observed == "" || f.Source == "" || !slices.Contains(verdicts, f.Verdict) ||
			wrong != (f.Hint != "") || wrong != (f.Class != "") || f.Strict && f.Verdict != check.Warn || f.Patience != 0 && f.Verdict != check.Wait {
			t.Errorf("not complete: %+v", f)
		}
	}
	for id, n := range passed {
		if n > 1 {
			t.Errorf("%s passes or is skipped %d times", id, n)
		}
	}
}

// golden compares findings with those of testdata/findings, one a line.
func golden(t *testing.T, name string, findings []check.Finding) {
	t.Helper()
	var text bytes.Buffer
	for _, f := range findings {
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join("testdata", "findings", name+".jsonl")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("findings differ (-update writes them anew):\n%s", diff)
	}
}
