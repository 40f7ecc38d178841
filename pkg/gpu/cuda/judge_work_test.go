package cuda

import (
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
)

// done is the work of n GPUs that are alike.
func done(n int, change ...func(*Worked)) Worked {
	w := Worked{Took: 1}
	for i, d := range healthy(n).Devices {
		e := Effort{Device: d, To: new(55.), From: new(54.), Products: 100, Rate: new(8.)}
		for peer := range n {
			if peer != i {
				e.Peers = append(e.Peers, Reach{Peer: peer, Rate: 380})
			}
		}
		w.GPUs = append(w.GPUs, e)
	}
	for _, c := range change {
		c(&w)
	}
	return w
}

// fails has GPU 1 fail at a step.
func fails(step Step, function string, code Code) func(*Worked) {
	return func(w *Worked) { w.GPUs[1].Failed = &Failure{step, function, ours(code)} }
}

// ends has the work end without an end; GPU 1 was at a step, if it is given.
func ends(code Code, detail string, step Step) func(*Worked) {
	return func(w *Worked) { w.End, w.Detail, w.GPUs[1].Doing = Answer{Code: code}, detail, step }
}

func TestJudgeWork(t *testing.T) {
	for _, tc := range []struct {
		name   string
		worked Worked
		want   []string
	}{
		{"all is well", done(2), nil},
		{"it computes wrong", done(2, func(w *Worked) { w.GPUs[1].Wrong = 3 }),
			[]string{"active.gpu_math FAIL node GPU 1 it computes wrong, and does not say so: 3 of the 419430400 elements of 100 products are not what they should be"}},
		{"a call fails", done(2, fails(StepTo, "cuMemcpyHtoDAsync_v2", 999)),
			[]string{"active.gpu_copy FAIL node GPU 1 cuMemcpyHtoDAsync_v2 (copies to it): UNKNOWN (999)"}},
		{"between peers", done(2, fails(StepPeers, "cuMemcpyPeerAsync", 220)),
			[]string{"active.gpu_peer FAIL node GPU 1 cuMemcpyPeerAsync (copies to other GPUs): NVLINK_UNCORRECTABLE (220)"}},
		{"no memory", done(2, fails(StepBegin, "cuMemHostAlloc", 2)),
			[]string{"active.gpu_copy UNKNOWN node GPU 1 cuMemHostAlloc (begin): OUT_OF_MEMORY (2)"}},
		{"no assembler", done(2, fails(StepProduct, "cuModuleLoadData", 221)),
			[]string{"active.gpu_math UNKNOWN user GPU 1 cuModuleLoadData (products): CODE_221 (221)"}},
		{"an old library", done(2, fails(StepPeers, "cuMemcpyPeerAsync", FunctionNotFound)),
			[]string{"active.gpu_peer SKIP GPU 1 cuMemcpyPeerAsync (copies to other GPUs): FUNCTION_NOT_FOUND"}},
		{"one hangs", done(2, ends(Unresponsive, "no answer from the driver within 1m0s", StepProduct)),
			[]string{"active.gpu_math FAIL node GPU 1 it has not done its work: it hangs at products"}},
		{"all hang", done(2, ends(Unresponsive, "no answer from the driver within 1m0s", "")),
			[]string{"active.gpu_copy FAIL node CUDA's driver does not answer: no answer from the driver within 1m0s"}},
		{"it died", done(2, ends(Died, "it was ended by signal SIGSEGV", StepTo)),
			[]string{"active.gpu_copy UNKNOWN node the process that put the GPUs to work has died: it was ended by signal SIGSEGV"}},
		{"one is not shown", done(1), []string{"active.gpu_copy UNKNOWN node GPU 1 CUDA does not show it, and it was not put to work"}},
		{"no CUDA", Worked{Init: ours(803), Took: 1}, []string{"active.gpu_copy FAIL user libcuda is of another version than the driver that is loaded, and does not fit it: SYSTEM_DRIVER_MISMATCH (803)"}},
		{"no cgo", Worked{Init: ours(NoCgo), Took: 1}, []string{"active.gpu_copy SKIP this bringupd was built without cgo, so it can't ask CUDA's driver: NO_CGO"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found, _ := JudgeWork(tc.worked, wanting(2).GPUs)
			var got []string
			for _, f := range found {
				if got = append(got, written(f)); !f.Quiet() && f.Hint == "" || !slices.Contains(WorkIDs(), f.ID) {
					t.Errorf("it is %+v", f)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// slowly has all that GPU i does take twice as long, and all that is copied to it.
func slowly(i int) func(*Worked) {
	return func(w *Worked) {
		for at := range w.GPUs {
			e := &w.GPUs[at]
			if at == i {
				e.To, e.From, e.Rate = new(*e.To/2), new(*e.From/2), new(*e.Rate/2)
			}
			for k := range e.Peers {
				if at == i || e.Peers[k].Peer == i {
					e.Peers[k].Rate /= 2
				}
			}
		}
	}
}

// nearer has GPUs reach those of their own half faster.
func nearer(w *Worked) {
	half := len(w.GPUs) / 2
	for at := range w.GPUs {
		for k, p := range w.GPUs[at].Peers {
			if (at < half) != (p.Peer < half) {
				w.GPUs[at].Peers[k].Rate /= 3
			}
		}
	}
}

// weak has one pair of GPUs copy slower.
func weak(a, b int) func(*Worked) {
	return func(w *Worked) {
		for _, from := range []int{a, b} {
			for k, p := range w.GPUs[from].Peers {
				if p.Peer == a+b-from {
					w.GPUs[from].Peers[k].Rate /= 4
				}
			}
		}
	}
}

// Who lags is told, and where all peers are alike nobody who only has to do with who lags.
func TestFigures(t *testing.T) {
	for _, tc := range []struct {
		name   string
		worked Worked
		want   []string // what lags
	}{
		{"all alike", done(8), nil},
		{"one is slow", done(8, slowly(3)), []string{"active.gpu_copy GPU 3", "active.gpu_peer GPU 3", "active.gpu_math GPU 3"}},
		{"one of two", done(2, func(w *Worked) { w.GPUs[1].Rate = new(2.) }), []string{"active.gpu_math GPU 1"}},
		{"two halves", done(8, nearer), nil},
		{"two halves, and one is slow", done(8, nearer, slowly(5)),
			[]string{"active.gpu_copy GPU 5", "active.gpu_peer GPU 4", "active.gpu_peer GPU 5", "active.gpu_peer GPU 6", "active.gpu_peer GPU 7", "active.gpu_math GPU 5"}},
		{"one link", done(8, weak(2, 6)), []string{"active.gpu_peer GPU 2", "active.gpu_peer GPU 6"}},
		{"one did nothing", done(8, func(w *Worked) { w.GPUs[4] = Effort{Device: w.GPUs[4].Device} }), nil},
		{"one alone", done(1), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, figures := JudgeWork(tc.worked, wanting(8).GPUs)
			var got []string
			for _, f := range check.JudgeFigures([]check.Group{{Report: check.Report{Figures: figures}}}) {
				if f.Verdict == check.Warn {
					got = append(got, f.ID+" "+check.Device{Index: f.Device.Index}.String())
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	// Beside a node that is well, too, the one that is slow is told of alone.
	_, well := JudgeWork(done(8), wanting(8).GPUs)
	_, lags := JudgeWork(done(8, slowly(3)), wanting(8).GPUs)
	for _, f := range check.JudgeFigures([]check.Group{{Report: check.Report{Figures: well}, Ranks: []int{0}}, {Report: check.Report{Figures: lags}, Ranks: []int{1}}}) {
		if f.Verdict == check.Warn && f.Device.Index != 3 {
			t.Errorf("of two nodes it is told %+v", f)
		}
	}
	_, figures := JudgeWork(done(2), wanting(2).GPUs)
	want := check.Figure{ID: idPeer, What: "to no. 1 of its peers by speed", Other: "GPU 1", Device: wanting(2).GPUs[0], Kind: "NVIDIA H100", Value: 380, Unit: "GB/s"}
	if len(figures) != 8 || figures[2] != want {
		t.Errorf("the figures are %+v", figures)
	}
}
