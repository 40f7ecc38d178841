package cuda

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
)

// The ids of the checks by work.
const (
	idCopy = "active.gpu_copy"
	idPeer = "active.gpu_peer"
	idMath = "active.gpu_math"
)

// WorkIDs are those of all checks that JudgeWork makes, and of its figures.
func WorkIDs() []string { return []string{idCopy, idPeer, idMath} }

// checkOf is which check a step belongs to.
var checkOf = map[Step]string{StepBegin: idCopy, StepTo: idCopy, StepFrom: idCopy, StepPeers: idPeer, StepProduct: idMath}

// Rested tells why a GPU, or nil for all, was not put to work.
func Rested(gpu *check.Device, why string) check.Finding {
	return check.Finding{ID: idCopy, Device: gpu, Verdict: check.Skip, Observed: "not put to work: " + why}
}

// hintWork is for a GPU that can't do its work.
const hintWork = "look into dmesg for NVRM and Xid lines, drain the node, and reset the GPU (nvidia-smi --gpu-reset) or reboot"

// JudgeWork returns what the work has shown to be wrong, GPU by GPU, and the figures of what was done. Whether those are
// what they should be is for check.JudgeFigures, once all nodes have told theirs. The GPUs are those that were to work, as
// NVML has them.
func JudgeWork(w Worked, gpus []check.Device) (findings []check.Finding, figures []check.Figure) {
	if w.Init.Code != 0 {
		f := begin(Facts{Init: w.Init, Detail: w.Detail, Loaded: w.Loaded}, Want{})
		f.ID = idCopy
		return []check.Finding{f}, nil
	}
	r := roll{check.Sheet{}, w, devicesOf(w, gpus), lagging(w.GPUs)}
	for _, e := range w.GPUs {
		r.effort(e)
		figures = append(figures, r.figures(e)...)
	}
	for _, gpu := range gpus {
		if w.End.Code == 0 && !slices.Contains(r.devices, gpu) {
			r.Each = check.Finding{ID: idCopy, Device: &gpu, Source: "cuDeviceGetUuid"}
			r.Say(check.Unknown, check.Node, "CUDA does not show it, and it was not put to work", "", hintReset)
		}
	}
	r.end()
	return r.Found, figures
}

// devicesOf are the devices of the work, by ordinal, as NVML calls them.
func devicesOf(w Worked, gpus []check.Device) (devices []check.Device) {
	for _, e := range w.GPUs {
		uuid, _ := e.UUID.Get()
		at := slices.IndexFunc(gpus, func(d check.Device) bool { return uuid != "" && bare(d.UUID) == uuid })
		if at < 0 {
			devices = append(devices, check.Device{Index: -1, UUID: uuid})
			continue
		}
		devices = append(devices, gpus[at])
	}
	return devices
}

// roll is where the work of all GPUs is judged.
type roll struct {
	check.Sheet
	worked  Worked
	devices []check.Device // by ordinal
	lagging []int          // ordinals of those that are slow with all of their peers
}

// lagging are those whose fastest copy to a peer is far slower than that of most others. Of two, both are as slow.
func lagging(efforts []Effort) (slow []int) {
	best := make(map[int]float64)
	for _, e := range efforts {
		for _, peer := range e.Peers {
			best[e.Ordinal] = max(best[e.Ordinal], peer.Rate)
		}
	}
	all := slices.Sorted(maps.Values(best))
	for _, e := range efforts {
		if own, told := best[e.Ordinal]; told && own < lagPart*all[len(all)/2] {
			slow = append(slow, e.Ordinal)
		}
	}
	return slow
}

// lagPart is what JudgeFigures tells of, of the median.
const lagPart = 0.8

// effort tells what is wrong with the work of one.
func (r *roll) effort(e Effort) {
	r.Each = check.Finding{Device: &r.devices[e.Ordinal]}
	switch {
	case e.Failed != nil:
		r.failed(*e.Failed)
	case e.Doing != "" && r.worked.End.Code == Unresponsive:
		r.Each.ID = checkOf[e.Doing]
		r.Fail(check.Node, fmt.Sprintf("it has not done its work: it hangs at %s", e.Doing), "", hintWork)
	}
	if e.Wrong > 0 {
		r.Each.ID, r.Each.Source = idMath, "a product of matrices"
		r.Fail(check.Node, fmt.Sprintf("it computes wrong, and does not say so: %d of the %d elements of %d %s are not what they should be",
			e.Wrong, e.Products*Side*Side, e.Products, prose.Noun(int(e.Products), "product")), "none",
			"drain the node: have the GPU tested (dcgmi diag -r 3) and replaced, and mistrust what the last jobs have computed on it")
	}
}

// failed tells of a call that has ended the work of a GPU.
func (r *roll) failed(f Failure) {
	r.Each.ID, r.Each.Source = checkOf[f.Step], f.Function
	observed := fmt.Sprintf("%s (%s): %s", f.Function, f.Step, f.Answer)
	switch f.Answer.Code {
	case FunctionNotFound:
		r.Skip(observed)
	case 2: // OUT_OF_MEMORY
		r.Say(check.Unknown, check.Node, observed, "SUCCESS", "see who has the GPU's memory (nvidia-smi), or, for cuMemHostAlloc, how much of the host's the job's cgroup has left")
	case 209, 218, 221, 222, 223: // NO_BINARY_FOR_GPU, INVALID_PTX, JIT_COMPILER_NOT_FOUND, UNSUPPORTED_PTX_VERSION, JIT_COMPILATION_DISABLED
		r.Say(check.Unknown, check.User, observed, "SUCCESS", "unset CUDA_DISABLE_PTX_JIT; in a container, see that libnvidia-ptxjitcompiler.so.1 of the driver is there, in the driver's own version")
	default:
		r.Fail(check.Node, observed, "SUCCESS", hintWork)
	}
}

// end tells of work that has come to no end, where no GPU bears that.
func (r *roll) end() {
	r.Each = check.Finding{ID: idCopy}
	switch {
	case r.worked.End.Code == Died:
		r.Say(check.Unknown, check.Node, "the process that put the GPUs to work has died: "+r.worked.Detail, "",
			"see in dmesg whether the kernel has killed it for want of memory, and for NVRM and Xid lines")
	case r.worked.End.Code == Unresponsive && !slices.ContainsFunc(r.worked.GPUs, func(e Effort) bool { return e.Doing != "" }):
		r.Fail(check.Node, "CUDA's driver does not answer: "+r.worked.Detail, "", hintWork)
	}
}

// figures are those of one GPU. What it reaches the others with is in the order of how fast that is: the fastest peer of
// one is like the fastest of another, whoever that is, and so on. So a GPU whose links are all slow lags, and not those
// that copy to it: copies to it are its own affair, and left out of theirs. Where some peers are near and others far
// nobody lags for that, but the neighbours of a slow GPU may: the figure has its name.
func (r *roll) figures(e Effort) (all []check.Figure) {
	model, known := e.Name.Get()
	if !known {
		return nil
	}
	figure := func(id, what, other string, value *float64, unit string) {
		if value != nil {
			all = append(all, check.Figure{ID: id, What: what, Other: other, Device: r.devices[e.Ordinal], Kind: model, Value: *value, Unit: unit})
		}
	}
	figure(idCopy, "to it", "", e.To, "GB/s")
	figure(idCopy, "from it", "", e.From, "GB/s")
	peers := slices.SortedStableFunc(slices.Values(e.Peers), func(a, b Reach) int { return cmp.Compare(b.Rate, a.Rate) })
	for i, peer := range slices.DeleteFunc(peers, func(p Reach) bool { return slices.Contains(r.lagging, p.Peer) }) {
		other := r.devices[peer.Peer]
		other.Bus = "" // its number is enough
		figure(idPeer, fmt.Sprintf("to no. %d of its peers by speed", i+1), other.String(), &peer.Rate, "GB/s")
	}
	figure(idMath, "", "", e.Rate, "TFLOP/s")
	return all
}
