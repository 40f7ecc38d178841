package fitness

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

var update = flag.Bool("update", false, "write the findings in testdata anew")

// report consists of facts, the expectation and the expected findings.
type report struct {
	name   string // of the golden file
	facts  string // of testdata/facts; empty: name, or h100 if change is set
	change func(*gpu.Facts)
	want   func(*Expectation)
	// fault describes the injected fault if the table of test/zoo/README.md lists it.
	fault string
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

func expect(n int) func(*Expectation) {
	return func(e *Expectation) { e.Count, e.CountSource = n, "--gpus-per-node" }
}

func visible(t *testing.T, list string) func(*Expectation) {
	return func(e *Expectation) {
		parsed, err := ParseExpectation(-1, "", []string{"CUDA_VISIBLE_DEVICES=" + list})
		if err != nil {
			t.Fatal(err)
		}
		e.Count, e.CountSource, e.Visible = parsed.Count, parsed.CountSource, parsed.Visible
	}
}

func allOf(a, b func(*Expectation)) func(*Expectation) { return func(e *Expectation) { a(e); b(e) } }

func mode(m check.GPUMode) func(*Expectation) { return func(e *Expectation) { e.Mode = m } }

func signs(signs ...string) func(*Expectation) { return func(e *Expectation) { e.Signs = signs } }

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

// withheld denies the process all GPUs of other vendors.
func withheld(f *gpu.Facts) {
	for i := range f.OtherGPUs {
		f.OtherGPUs[i].Reason = gpu.NoPermission
	}
}

func handle(why gpu.NVMLReturn) func(*gpu.Facts) {
	return one(3, func(g *gpu.GPU) { *g = gpu.GPU{Index: 3, Handle: why, Bus: g.Bus} })
}

func initOf(why gpu.NVMLReturn) func(*gpu.Facts) {
	return func(f *gpu.Facts) { *f = gpu.Facts{Version: 1, Init: why} }
}

// pair changes NVML's status of the connection between two GPUs.
func pair(status int, ends ...int) func(*gpu.Facts) {
	return func(f *gpu.Facts) {
		for i, p := range f.Pairs {
			if slices.Contains(ends, p.A) && (len(ends) == 1 || slices.Contains(ends, p.B)) ||
				len(ends) == 1 && slices.Contains(ends, p.B) {
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

func procs(used uint64, list ...gpu.Process) func(*gpu.Facts) {
	return one(4, func(g *gpu.GPU) {
		g.Processes = read(list)
		memory := *g.Memory.Value
		memory.Used = used
		g.Memory = read(memory)
	})
}

// runs changes the compute processes of a GPU.
func runs(i int, list ...gpu.Process) func(*gpu.Facts) {
	return one(i, func(g *gpu.GPU) { g.Processes = read(list) })
}

// memory changes the sizes of a GPU's memory, in GiB.
func memory(total, used uint64) func(*gpu.GPU) {
	return func(g *gpu.GPU) { g.Memory = read(gpu.Memory{Total: total << 30, Used: used << 30}) }
}

// slots puts the eight GPUs of the h100 on the bus; one of them has fallen off it.
func slots(id, fallen string) func(*gpu.Facts) {
	return func(f *gpu.Facts) {
		for _, bus := range []string{"1b", "43", "52", "61", "9d", "c3", "d1", "df"} {
			slot := gpu.PCISlot{Bus: "0000:" + bus + ":00.0", ID: id}
			if slot.Bus == fallen {
				slot.ID = gpu.OffBus
			}
			f.Slots = append(f.Slots, slot)
		}
	}
}

func environ(list ...string) func(*Expectation) { return func(e *Expectation) { e.Environ = list } }

const (
	mib  = 1 << 20
	gpu2 = "GPU-5d1e0a02-1c5a-4b52-9d3e-7a60c41f0002"
)

// reports returns all test cases, good and bad.
func reports(t *testing.T) []report {
	sram := func(s gpu.MemoryErrors) func(*gpu.Facts) { return one(2, func(g *gpu.GPU) { g.SRAM = read(s) }) }
	remap := func(r gpu.RemappedRows) func(*gpu.Facts) { return one(2, func(g *gpu.GPU) { g.Remapped = read(r) }) }
	mig := func(current, pending bool) func(*gpu.Facts) {
		return one(0, func(g *gpu.GPU) { g.MIG = read(gpu.ModeState{Current: current, Pending: pending}) })
	}
	idle := func(e *Expectation) { e.Count, e.CountSource = -1, "" }
	none := func(e *Expectation) { e.Count, e.CountSource = 0, "SLURM_GPUS_ON_NODE" }
	shown := func(n int) func(*gpu.Facts) {
		return func(f *gpu.Facts) { f.Count, f.GPUs, f.Pairs = read(n), f.GPUs[:n], nil }
	}
	return []report{
		{name: "h100"},
		{name: "gb200", want: expect(4)},
		{name: "v100"},
		{name: "l40s", want: expect(4)},
		{name: "a100-bridges", want: expect(4)},
		{name: "a100-mig", want: expect(9)},
		{name: "h100-driver535"},
		{name: "geforce", want: expect(1)},
		{name: "mixed", want: expect(3)},

		{name: "no-library", fault: "no sign of a GPU, but some are expected"},
		{name: "no-library-auto", facts: "no-library", want: idle},
		{name: "no-library-none", facts: "no-library", want: allOf(none, signs("device file /dev/nvidia0"))},
		{name: "no-library-require", facts: "no-library", want: allOf(idle, mode(check.ModeRequire))},
		{name: "no-library-none-require", facts: "no-library", want: allOf(none, mode(check.ModeRequire))},
		{name: "no-library-bus", facts: "no-library", want: allOf(idle, signs("PCI device 0000:3b:00.0"))},
		{name: "no-library-bus-expected", facts: "no-library", want: signs("PCI device 0000:3b:00.0")},
		{name: "no-library-container", facts: "no-library",
			want: signs("device file /dev/nvidia0", "device file /dev/nvidiactl",
				"PCI device 0000:3b:00.0"), fault: "a container without the library"},
		{name: "no-driver", want: signs("PCI device 0000:3b:00.0"), fault: "the driver is not loaded"},
		{name: "mi250"},
		{name: "mi250-slurm-modules", facts: "mi250", want: expect(4)},
		{name: "mi300x"},
		{name: "mi300x-some", facts: "mi300x", want: allOf(expect(2), environ("ROCR_VISIBLE_DEVICES=2,3"))},
		{name: "mi300x-withheld", facts: "mi300x", change: withheld,
			fault: "a user outside of the group render (MI300X)"},
		{name: "mi300x-withheld-require", facts: "mi300x", change: withheld, want: mode(check.ModeRequire)},
		{name: "mi300x-forgone", facts: "mi300x", want: none},
		{name: "max1550", want: expect(6)},
		{name: "max1550-tiles", facts: "max1550", want: expect(12)},
		{name: "max1550-short", facts: "max1550", want: expect(16)},
		{name: "no-driver-auto", facts: "no-driver", want: idle},
		{name: "no-driver-bus", facts: "no-driver", want: allOf(idle, signs("PCI device 0000:3b:00.0"))},
		{name: "unresponsive", fault: "the driver hangs"},
		{name: "unresponsive-none", facts: "unresponsive", want: none,
			fault: "the driver hangs, and the job has no GPU"},
		{name: "mismatch", change: initOf(gpu.LibRMVersionMismatch), fault: "the driver was updated without a reboot"},
		{name: "mismatch-auto", change: initOf(gpu.LibRMVersionMismatch), want: idle},
		{name: "mismatch-none", change: initOf(gpu.LibRMVersionMismatch), want: none},
		{name: "cgroup", change: initOf(gpu.OperatingSystem), fault: "a cgroup without /dev/nvidiactl"},
		{name: "cgroup-auto", change: initOf(gpu.OperatingSystem), want: idle},
		{name: "init-unknown", change: initOf(gpu.UnknownError), fault: "an internal error of the driver"},
		{name: "init-timeout", change: initOf("TIMEOUT")},
		{name: "probe-died", change: func(f *gpu.Facts) { initOf(gpu.ProbeDied)(f); f.Detail = "exit status 127" },
			fault: "the library crashes its caller"},
		{name: "no-cgo", change: initOf(gpu.NoCgo), want: signs("device file /dev/nvidia0")},
		{name: "no-cgo-auto", change: initOf(gpu.NoCgo), want: idle},

		{name: "h100-seven", fault: "a GPU is missing, also from the bus"},
		{name: "fallen", facts: "h100-seven", change: slots("10de:2330", "0000:df:00.0"),
			fault: "a GPU has fallen off the bus, and the driver was reloaded"},
		{name: "fallen-auto", facts: "h100-seven", change: slots("10de:2330", "0000:df:00.0"), want: idle},
		{name: "fallen-unused", facts: "h100-seven", change: slots("10de:2330", "0000:df:00.0"),
			want: expect(4), fault: "the same, where the job has four others"},
		{name: "fallen-lost", facts: "h100-lost", change: slots("10de:2330", "0000:61:00.0")},
		{name: "fallen-elsewhere", change: func(f *gpu.Facts) {
			slots("10de:2330", "0000:df:00.0")(f)
			shown(2)(f)
		}, want: idle},
		{name: "slots", change: slots("10de:2330", "")},
		{name: "slots-other", facts: "h100-seven", change: func(f *gpu.Facts) {
			slots("10de:2330", "")(f)
			f.Slots = append(f.Slots, gpu.PCISlot{Bus: "0000:f0:00.0", ID: "10de:0ffa"})
		}},
		{name: "slots-unread", facts: "h100-seven", change: slots("", "")},
		{name: "shown-two", change: func(f *gpu.Facts) { slots("10de:2330", "")(f); shown(2)(f) },
			fault: "a container sees two of eight GPUs"},
		{name: "shown-none", change: func(f *gpu.Facts) { slots("10de:2330", "")(f); shown(0)(f) },
			want: allOf(idle, mode(check.ModeRequire)), fault: "a step without GPUs"},
		{name: "h100-lost", fault: "a GPU is lost"},
		{name: "reset-required", change: handle(gpu.ResetRequired), fault: "a GPU must be reset"},
		{name: "hangs", change: one(3, func(g *gpu.GPU) {
			*g = gpu.GPU{Index: 3, Handle: gpu.DriverUnresponsive, Hangs: "nvmlDeviceGetVbiosVersion", Bus: g.Bus}
		}), fault: "a GPU hangs in a call"},
		{name: "handle-unknown", change: handle(gpu.UnknownError), fault: "a GPU that cannot be initialised"},
		{name: "lost-late", change: one(3, func(g *gpu.GPU) { g.Recovery = unread[int](gpu.GPUIsLost) }),
			fault: "a GPU is lost during a query"},
		{name: "no-permission", change: handle(gpu.NoPermission), want: expect(7)},
		{name: "no-permission-short", change: handle(gpu.NoPermission), fault: "a GPU that this user may not use"},
		{name: "count-unread", change: func(f *gpu.Facts) { f.Count = unread[int]("TIMEOUT") }},
		{name: "count-other", change: func(f *gpu.Facts) { f.Count = read(9) }},
		{name: "count-auto", facts: "h100", want: idle},
		{name: "count-none", facts: "h100", want: none},
		{name: "no-gpu-auto", change: func(f *gpu.Facts) { f.Count, f.GPUs, f.Pairs = read(0), nil, nil }, want: idle},
		{name: "no-gpu-require", change: func(f *gpu.Facts) {
			f.Count, f.GPUs, f.Pairs = read(0), nil, nil
		}, want: allOf(idle, mode(check.ModeRequire))},
		{name: "listed", facts: "h100-lost", want: visible(t, "0,1,4,5")},
		{name: "listed-lost", facts: "h100-lost", want: visible(t, "2,3")},
		{name: "listed-uuid", facts: "h100-lost", want: visible(t, gpu2)},
		{name: "listed-uuid-lost", facts: "h100-lost", want: visible(t, "GPU-5d1e0a03")},
		{name: "listed-beyond", facts: "h100", want: visible(t, "7,8"),
			fault: "CUDA_VISIBLE_DEVICES names a ninth GPU"},
		{name: "listed-elsewhere", facts: "h100", want: visible(t, "GPU-ffffffff"),
			fault: "CUDA_VISIBLE_DEVICES of another node"},
		{name: "listed-fewer", facts: "h100", want: allOf(visible(t, "0,1"), expect(4)),
			fault: "CUDA_VISIBLE_DEVICES lists fewer than the job has"},
		{name: "listed-mig", facts: "a100-mig",
			want: visible(t, "MIG-8a1b0000,MIG-8a1b0003-33aa-5c31-8e0b-0d1f2c3b4a03")},
		{name: "listed-mixed", facts: "mixed", want: visible(t, "0,1"), fault: "indices on a node with two models"},
		{name: "listed-mixed-ordered", facts: "mixed",
			want: allOf(visible(t, "0,1"), func(e *Expectation) { e.PCIBusOrder = true })},

		{name: "recovery-reset", change: one(5, func(g *gpu.GPU) { g.Recovery = read(1) }),
			fault: "the driver requests a reset"},
		{name: "recovery-imex", change: one(5, func(g *gpu.GPU) { g.Recovery = read(5) }),
			fault: "the driver requests a recovery of the IMEX domain"},
		{name: "recovery-other", change: one(5, func(g *gpu.GPU) { g.Recovery = read(99) }),
			fault: "the driver requests an unknown action"},
		{name: "remap-failed", change: remap(gpu.RemappedRows{Uncorrected: 1, Failed: true}),
			fault: "no spare rows are left"},
		{name: "remap-pending", change: remap(gpu.RemappedRows{Uncorrected: 1, Pending: true}),
			fault: "a row remapping is pending"},
		{name: "sram-uncorrected", change: sram(gpu.MemoryErrors{Uncorrected: 1}),
			fault: "a contained uncorrectable SRAM error"},
		{name: "sram-uncorrected-old", change: one(2, func(g *gpu.GPU) {
			g.SRAM, g.Recovery = read(gpu.MemoryErrors{Uncorrected: 1}), unread[int](gpu.NotSupported)
		}), fault: "the same with an older driver, which does not report containment"},
		{name: "sram-uncorrected-reset", change: one(2, func(g *gpu.GPU) {
			g.SRAM, g.Recovery = read(gpu.MemoryErrors{Uncorrected: 1}), read(1)
		})},
		{name: "sram-threshold", change: sram(gpu.MemoryErrors{ThresholdExceeded: true}),
			fault: "too many SRAM errors"},
		{name: "dram-uncorrected", change: one(2,
			func(g *gpu.GPU) { g.DRAM = read(gpu.MemoryErrors{Uncorrected: 2}) }), fault: "uncorrectable DRAM errors"},
		{name: "v100-retired", fault: "retired pages (V100)"},

		{name: "h100-joining", fault: "the fabric manager has not finished"},
		{name: "fabric-failed", change: one(1,
			fabric(func(f *gpu.Fabric) { f.Status = "NOT_READY" })), fault: "a GPU could not join the fabric"},
		{name: "fabric-bandwidth", change: one(1, mask(1, 3)), fault: "the fabric has lost bandwidth"},
		{name: "fabric-recovers", change: one(1, mask(1<<2, 3<<2)), fault: "routes are being recovered"},
		{name: "fabric-route", change: one(1, mask(1<<4, 3<<4)), fault: "unhealthy route"},
		{name: "fabric-time-out", change: one(1, mask(1<<6, 3<<6))},
		{name: "fabric-configuration", change: one(1, mask(5<<8, 15<<8)), fault: "the fabric is wrongly configured"},
		{name: "fabric-mask-new", change: one(1, mask(15<<8, 0))},
		{name: "fabric-unhealthy", facts: "gb200",
			change: one(1, fabric(func(f *gpu.Fabric) { f.Summary = new(2) })), want: expect(4),
			fault: "the fabric is unhealthy"},
		{name: "fabric-limited", facts: "gb200",
			change: one(1, fabric(func(f *gpu.Fabric) { f.Summary = new(3) })), want: expect(4),
			fault: "a tray with limited capacity"},
		{name: "fabric-state-new", change: one(1, fabric(func(f *gpu.Fabric) { f.State = 4 }))},
		{name: "link-down", change: one(3, down(4, 11)), fault: "two NVLinks of a GPU are down"},
		{name: "links-dead", change: each(down(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
			16, 17)), fault: "all NVLinks are down on all SXM GPUs"},
		{name: "nvl-alone", facts: "h100-nvl", change: func(f *gpu.Facts) {
			shown(1)(f)
			each(down(0, 1, 2, 3, 6, 7, 8, 9, 12, 13, 14, 15))(f)
		}, want: expect(1)},
		{name: "mesh-part-link", facts: "v100-four", change: one(2, down(0, 1)), want: expect(4)},
		{name: "c2c-down", facts: "gb200", change: one(2,
			func(g *gpu.GPU) { g.C2C = read(gpu.LinkCount{Active: 9, Total: 10}) }),
			want: expect(4), fault: "a link to Grace is down"},
		{name: "c2c-dead", facts: "gb200", change: one(2,
			func(g *gpu.GPU) { g.C2C = read(gpu.LinkCount{Total: 10}) }), want: expect(4)},
		{name: "c2c-none", change: each(func(g *gpu.GPU) { g.C2C = read(gpu.LinkCount{Total: 10}) })},
		{name: "link-gone", change: one(3, func(g *gpu.GPU) { g.Links = g.Links[:17] }),
			fault: "a GPU shows fewer NVLinks"},
		{name: "bridge-gone", facts: "a100-bridges",
			change: each(func(g *gpu.GPU) { down(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)(g) }), want: expect(4)},
		{name: "bridge-loose", facts: "a100-bridges", change: one(0, down(0, 1, 2, 3)),
			want: expect(4), fault: "a loose bridge"},
		{name: "p2p-one", change: pair(5, 3), fault: "no P2P between a GPU and the others"},
		{name: "p2p-pair", change: pair(5, 2, 5), fault: "no P2P between two GPUs"},
		{name: "p2p-mesh", facts: "v100", change: pair(5, 0, 3), fault: "the same in a mesh (V100)"},
		{name: "p2p-bridges", facts: "a100-bridges", change: func(f *gpu.Facts) {
			for i := range f.Pairs {
				f.Pairs[i].Status = read(5)
			}
		}, want: expect(4), fault: "NVLink bridges without P2P"},

		{name: "p2p-none", change: func(f *gpu.Facts) {
			for i := range f.Pairs {
				f.Pairs[i].Status = read(5)
			}
		}, fault: "no P2P between any GPUs"},
		{name: "link-down-v100", facts: "v100", change: one(0, down(5)), fault: "an NVLink of a mesh is down (V100)"},

		{name: "hgx-a100-4", want: expect(4), fault: "a row remapping of an A100 is pending (as " +
			"found: thamada/gls@e20f22d gls/A100SXMx4_smi.py)"},

		{name: "mig-pending", change: mig(false, true), fault: "a MIG change is pending until a reset"},
		{name: "mig-empty", change: mig(true, true), want: expect(7), fault: "MIG without an instance"},
		{name: "compute-prohibited", change: one(0, func(g *gpu.GPU) { g.ComputeMode = read(2) }),
			fault: "computing is prohibited"},
		{name: "compute-exclusive", change: one(0, func(g *gpu.GPU) { g.ComputeMode = read(3) }),
			fault: "one process at a time"},
		{name: "compute-new", change: one(0, func(g *gpu.GPU) { g.ComputeMode = read(4) })},
		{name: "busy-process", change: procs(70000*mib,
			gpu.Process{PID: 4711, Used: 69000 * mib, Name: "python3"}), fault: "a process of the last job"},
		{name: "busy-memory", change: procs(513 * mib), fault: "memory without a process"},
		{name: "busy-little", change: procs(512 * mib)},
		{name: "busy-stale", change: procs(mib, gpu.Process{PID: 4711}), fault: "a process that no longer exists"},
		{name: "busy-elsewhere", change: procs(2000*mib, gpu.Process{PID: 4711, Unknown: true}),
			fault: "a process of another container"},
		{name: "busy-mps", change: procs(30*mib, gpu.Process{PID: 4711, Used: 30 * mib, Name: "nvidia-cuda-mps"})},
		{name: "busy-many", change: procs(mib, gpu.Process{PID: 1, Used: mib, Name: "a"},
			gpu.Process{PID: 2, Used: mib, Name: "b"}, gpu.Process{PID: 3, Used: mib, Name: "c"},
			gpu.Process{PID: 4, Used: mib, Name: "d"}, gpu.Process{PID: 5, Used: mib, Name: "e"})},
		{name: "busy-other-job", change: procs(70000*mib,
			gpu.Process{PID: 4711, Used: 69000 * mib, Name: "python3"}), want: expect(4),
			fault: "another job's process"},
		{name: "busy-desktop", facts: "desktop-rtx3080",
			change: runs(0, gpu.Process{PID: 4044, Used: mib, Name: "firefox"}), want: expect(1)},
		{name: "busy-desktop-unknown", facts: "desktop-rtx3080",
			change: one(0, func(g *gpu.GPU) {
				g.GraphicsProcesses = read([]gpu.Process{{PID: 835,
					Unknown: true, Name: "Xorg"}})
			}), want: expect(1)},
		{name: "busy-desktop-compute", facts: "desktop-rtx3080",
			change: runs(0, gpu.Process{PID: 42, Used: mib, Name: "python"}), want: expect(1),
			fault: "a program computes on a desktop's GPU"},
		{name: "busy-desktop-full", facts: "desktop-rtx3080",
			change: one(0, memory(10, 9)), want: expect(1)},
		{name: "busy-coherent", facts: "gb200",
			change: each(memory(185, 100)), want: expect(4)},
		{name: "busy-coherent-process", facts: "gb200",
			change: runs(1, gpu.Process{PID: 42, Used: 90 << 30, Name: "python"}), want: expect(4),
			fault: "a process is left on a GPU whose memory is a NUMA node"},
		{name: "busy-instance", facts: "a100-tenants",
			want:  visible(t, "MIG-00000000-0000-5000-8000-000000000001"),
			fault: "the job's own MIG instance is in use"},
		{name: "busy-all-instances", facts: "a100-tenants", want: expect(4)},
		{name: "busy-no-instance", facts: "a100-tenants", want: visible(t, "0")},
		{name: "busy-hidden", change: each(func(g *gpu.GPU) {
			g.Processes, g.Memory = unread[[]gpu.Process](gpu.NoPermission), unread[gpu.Memory](gpu.NoPermission)
		})},
	}
}

// scene returns the facts and the expectation, and, if the facts are another report's, the findings
// of the unchanged ones.
func (r report) scene(t *testing.T) (f gpu.Facts, want Expectation, usual []check.Finding) {
	t.Helper()
	file := cmp.Or(r.facts, r.name)
	if r.facts == "" && r.change != nil {
		file = "h100"
	}
	want = Expectation{Count: 8, CountSource: "SLURM_GPUS_ON_NODE", Mode: check.ModeAuto,
		Environ: []string{"HOME=/root"}}
	f = load(t, file)
	if r.change != nil {
		usual = EvaluateFacts(f, want)
		r.change(&f)
	}
	if r.want != nil {
		usual = EvaluateFacts(load(t, file), want)
		r.want(&want)
	}
	if file == r.name {
		usual = nil
	}
	return f, want, usual
}

// TestReports evaluates each report. The findings of a changed one are compared without those that
// the unchanged one has, too.
func TestReports(t *testing.T) {
	names := make(map[string]bool)
	for _, r := range reports(t) {
		t.Run(r.name, func(t *testing.T) {
			if names[r.name] {
				t.Fatal("a second report of this name")
			}
			names[r.name] = true
			f, want, usual := r.scene(t)
			findings := EvaluateFacts(f, want)
			wantComplete(t, findings)
			golden(t, r.name, slices.DeleteFunc(findings, func(f check.Finding) bool {
				return slices.ContainsFunc(usual, func(u check.Finding) bool { return gocmp.Equal(u, f) })
			}))
		})
	}
}

// TestRetiredPages verifies the vendor's limits of retired pages: reaching a limit is too many.
func TestRetiredPages(t *testing.T) {
	for _, tc := range []struct {
		single, double int
		says           string
	}{
		{14, 0, ""},
		{60, 2, ""},
		{60, 3, "FAIL"},
		{0, 64, "FAIL"},
	} {
		var says string
		pages := gpu.RetiredPages{SingleBit: tc.single, DoubleBit: tc.double}
		e := gpuCheck{gpu: gpu.GPU{Health: gpu.Health{Retired: read(pages)}}}
		checkRetired(&e)
		for _, f := range e.Findings {
			says += fmt.Sprint(f.Verdict)
		}
		if says != tc.says {
			t.Errorf("%d and %d pages: %q, want %q", tc.single, tc.double, says, tc.says)
		}
	}
}

// summary names the findings that are neither Pass nor Skip.
func summary(findings []check.Finding) string {
	var parts []string
	for _, f := range findings {
		switch {
		case f.Verdict == check.Pass || f.Verdict == check.Skip:
		case f.Device == nil:
			parts = append(parts, fmt.Sprintf("%s %s", f.ID, f.Verdict))
		case f.Device.Index < 0:
			parts = append(parts, fmt.Sprintf("%s %s %s", f.ID, f.Device.Bus, f.Verdict))
		default:
			parts = append(parts, fmt.Sprintf("%s %d %s", f.ID, f.Device.Index, f.Verdict))
		}
	}
	return strings.Join(parts, ", ")
}

var verdicts = []check.Verdict{check.Pass, check.Skip, check.Warn, check.Unknown, check.Wait, check.Fail}

// wantComplete checks that findings have all required texts.
func wantComplete(t *testing.T, findings []check.Finding) {
	t.Helper()
	passed := make(map[string]int)
	for _, f := range findings {
		wrong := f.Verdict != check.Pass && f.Verdict != check.Skip
		if !wrong {
			passed[f.ID]++
		}
		if f.ID == "" || f.Observed == "" || f.Source == "" || !slices.Contains(verdicts, f.Verdict) ||
			wrong != (f.Hint != "") || wrong != (f.Class != "") || f.Strict &&
			f.Verdict != check.Warn || f.MaxWait != 0 && f.Verdict != check.Wait {
			t.Errorf("not complete: %+v", f)
		}
	}
	for id, n := range passed {
		if n > 1 {
			t.Errorf("%s passes or is skipped %d times", id, n)
		}
	}
}

// golden compares findings with those of testdata/findings, one per line.
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
	if diff := gocmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("findings differ (-update writes them anew):\n%s", diff)
	}
}
