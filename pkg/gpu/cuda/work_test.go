//go:build linux && cgo

package cuda

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/test/standin"
)

// working is a process that has the library's GPUs work.
func working(t *testing.T, f standin.Fake) *exec.Cmd {
	t.Helper()
	return looking(t, f, lookVariable+"=work")
}

// worked returns what they have done. The process has given everything back.
func worked(t *testing.T, f standin.Fake) Worked {
	t.Helper()
	cmd := working(t, f)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil || said.Len() > 0 {
		t.Fatalf("the process that worked has ended with %v: %s", err, said.String())
	}
	var w Worked
	if err := json.Unmarshal(out, &w); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return w
}

// about tells whether a rate was measured, and is that one.
func about(rate *float64, want float64) bool { return rate != nil && math.Abs(*rate/want-1) < 1e-3 }

// Eight H100, as the stand-in has them: each copies to each, and all that they compute is right.
func TestWork(t *testing.T) {
	w := worked(t, saying(t))
	if w.Init.Code != 0 || w.End.Code != 0 || len(w.GPUs) != 8 || w.Took <= 0 || w.Loaded == "" {
		t.Fatalf("the work is %+v", w)
	}
	for i, e := range w.GPUs {
		var peers []int
		for _, p := range e.Peers {
			if peers = append(peers, p.Peer); !about(&p.Rate, 100) || p.Why.Code != 0 {
				t.Errorf("GPU %d: %+v", i, p)
			}
		}
		slices.Sort(peers)
		if others := slices.DeleteFunc([]int{0, 1, 2, 3, 4, 5, 6, 7}, func(n int) bool { return n == i }); !slices.Equal(peers, others) {
			t.Errorf("GPU %d has copied to %v", i, peers)
		}
		if e.Ordinal != i || e.Doing != "" || e.Failed != nil || !about(e.To, 25) || !about(e.From, 24) ||
			!about(e.Rate, 2) || e.Products < 300 || e.Wrong != 0 {
			t.Errorf("GPU %d: %+v", i, e)
		}
	}
}

// What the library is told to do wrong arrives, at the GPU that has done it.
func TestWorkFaults(t *testing.T) {
	failed := func(step Step, function string, code Code) func(Worked) bool {
		return func(w Worked) bool {
			f := w.GPUs[2].Failed
			return f != nil && f.Step == step && f.Function == function && f.Answer.Code == code && w.GPUs[1].Failed == nil && about(w.GPUs[1].Rate, 2)
		}
	}
	for _, tc := range []struct {
		name, lines string
		seen        func(Worked) bool
	}{
		{"wrong results", "gpus 3\ngpu 2 wrong 1", func(w Worked) bool {
			return w.GPUs[2].Wrong == w.GPUs[2].Products && w.GPUs[2].Failed == nil && w.GPUs[1].Wrong == 0
		}},
		{"a slow one", "gpus 3\ngpu 2 slow 4", func(w Worked) bool {
			e := w.GPUs[2]
			return about(e.To, 25./4) && about(e.From, 24./4) && about(e.Rate, 2./4) && about(&e.Peers[0].Rate, 100./4) && about(w.GPUs[1].To, 25)
		}},
		{"a weak link", "gpus 3\ngpu 2 weak 0 4", func(w Worked) bool {
			e := w.GPUs[2]
			return len(e.Peers) == 2 && about(&e.Peers[slices.IndexFunc(e.Peers, func(r Reach) bool { return r.Peer == 0 })].Rate, 25) && len(w.GPUs[1].Peers) == 2
		}},
		{"peers by the host", "gpus 2\npeer 0 1 0", func(w Worked) bool {
			return w.GPUs[0].Peers[0].Why.Code == 217 && w.GPUs[1].Peers[0].Why.Code == 0
		}},
		{"one alone", "gpus 1", func(w Worked) bool { return w.GPUs[0].Peers == nil && about(w.GPUs[0].Rate, 2) }},
		{"little memory", "gpus 1\ngpu 0 free 300000000", func(w Worked) bool { return w.GPUs[0].Failed == nil && w.GPUs[0].Wrong == 0 }},
		{"too little memory", "gpus 3\ngpu 2 free 60000000", failed(StepBegin, "cuMemAlloc_v2", 2)},
		{"no context", "gpus 3\ngpu 2 return cuDevicePrimaryCtxRetain 46", failed(StepBegin, "cuDevicePrimaryCtxRetain", 46)},
		{"no device", "gpus 3\ngpu 2 return cuDeviceGet 101", failed(StepBegin, "cuDeviceGet", 101)},
		{"copies that fail", "gpus 3\ngpu 2 return cuMemcpyHtoDAsync 999", failed(StepTo, "cuMemcpyHtoDAsync_v2", 999)},
		{"copies that fail later", "gpus 3\ngpu 2 return cuMemcpyPeerAsync 719", failed(StepPeers, "cuMemcpyPeerAsync", 719)},
		{"no kernel", "gpus 3\ngpu 2 return cuModuleLoadData 221", failed(StepProduct, "cuModuleLoadData", 221)},
		{"a kernel that fails", "gpus 3\ngpu 2 return cuEventSynchronize 700", failed(StepTo, "cuEventSynchronize", 700)},
		{"no time", "gpus 1\ngpu 0 slow 0", func(w Worked) bool {
			return w.GPUs[0].Failed != nil && w.GPUs[0].Failed.Function == "cuEventElapsedTime"
		}},
		{"no CUDA", "return cuInit 802", func(w Worked) bool { return w.Init.Name == "SYSTEM_NOT_READY" && w.GPUs == nil }},
		{"no GPU", "gpus 0", func(w Worked) bool { return w.Init.Code == 0 && w.GPUs == nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if w := worked(t, saying(t, tc.lines)); !tc.seen(w) {
				t.Errorf("after %q the work is %+v", tc.lines, w)
			}
		})
	}
}

// A library that lacks a function says so, and an older one may have the older one.
func TestWorkLacking(t *testing.T) {
	f := lacking(t, "cuMemcpyPeerAsync")
	if w := worked(t, f); w.GPUs[7].Failed == nil || w.GPUs[7].Failed.Answer.Name != "FUNCTION_NOT_FOUND" {
		t.Errorf("the work is %+v", w)
	}
	if w := worked(t, standin.Fake{Library: filepath.Join(t.TempDir(), "libcuda.so.1")}); w.Init.Code != LibraryNotFound || w.Detail == "" {
		t.Errorf("the work is %+v", w)
	}
}

// Each meets each other once, and nobody has two partners at a time.
func TestRounds(t *testing.T) {
	for n := range 17 {
		met := make(map[[2]int]int)
		plan := rounds(n)
		for _, partner := range plan {
			for a, b := range partner {
				if partner[b] != a {
					t.Fatalf("of %d: %v", n, partner)
				}
				if a != b {
					met[[2]int{a, b}]++
				}
			}
		}
		if want := max(0, n+n%2-1); len(plan) != want && n > 0 {
			t.Errorf("%d have %d rounds, want %d", n, len(plan), want)
		}
		for a := range n {
			for b := range n {
				if a != b && met[[2]int{a, b}] != 1 {
					t.Errorf("of %d, %d and %d meet %d times", n, a, b, met[[2]int{a, b}])
				}
			}
		}
	}
}

// The product of the matrices is what the kernel that checks it thinks, and a float has all sums.
func TestFactors(t *testing.T) {
	both := factors()
	for _, at := range [][2]int{{0, 0}, {1, 0}, {0, 1}, {17, 42}, {Side - 1, Side - 1}, {1023, 64}} {
		var sum float32
		for k := range Side {
			sum += both[at[0]*Side+k] * both[Side*Side+k*Side+at[1]]
		}
		d := ((11*at[1]-5*at[0])%64 + 64) % 64
		if want := Side / 64 * (85344 - 32*d*(64-d)); int(sum) != want || want >= 1<<24 {
			t.Errorf("at %v it is %v, want %d", at, sum, want)
		}
	}
}

// The text of the kernels is all that a driver is given: nothing of a newer version is in it, and it says the same of the
// result as we do.
func TestKernels(t *testing.T) {
	for _, part := range []string{".version 6.0\n.target sm_50\n", ".visible .entry product(", ".visible .entry check(", "85344"} {
		if !strings.Contains(kernels, part) {
			t.Errorf("it lacks %q", part)
		}
	}
}

func TestNear(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "sys/bus/pci/devices/0000:3b:00.0")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for list, want := range map[string][]int{"0-2,8\n": {0, 1, 2, 8}, "5": {5}, "": nil, "x": nil, "0-99999": nil, "3-1": nil} {
		if err := os.WriteFile(filepath.Join(folder, "local_cpulist"), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		cpus, ok := near(root, "0000:3b:00.0")
		var got []int
		for cpu := range 64 {
			if ok && cpus.IsSet(cpu) {
				got = append(got, cpu)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q is %v, want %v", list, got, want)
		}
	}
	if _, ok := near(root, "0000:ff:00.0"); ok {
		t.Error("there is no such device")
	}
}
