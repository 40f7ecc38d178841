package cuda

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Want is what CUDA should show, by what NVML and the job say.
type Want struct {
	Needed bool           // the job can't do without GPUs
	GPUs   []check.Device // NVML's, that the job is to use; one without a UUID is only counted
	Joined [][2]string    // UUIDs of pairs of them that reach each other over NVLink, by NVML
	Driver string         // version of the driver that is loaded: 570.86.15
	MIG    bool           // at least one of the GPUs is cut up
	Fabric bool           // the GPUs have joined an NVLink fabric of several nodes
}

// The ids of the checks.
const (
	idInit    = "cuda.init"
	idDevices = "cuda.devices"
	idPeers   = "cuda.peers"
)

// IDs are those of all checks that Judge makes.
func IDs() []string { return []string{idInit, idDevices, idPeers} }

// Judge returns what the facts mean for a job that wants that. Where cuInit fails there is nothing else to say. What no
// job needs is never worse than a Warn.
func Judge(f Facts, want Want) []check.Finding {
	if !want.Needed && len(want.GPUs) == 0 {
		return []check.Finding{{ID: idInit, Verdict: check.Skip, Observed: "NVML shows no GPU that CUDA could use", Source: "NVML"}}
	}
	findings := []check.Finding{begin(f, want)}
	if f.Init.Code == 0 {
		findings = append(append(findings, devices(f, want)...), peers(f, want)...)
	}
	for i := range findings {
		if one := &findings[i]; !want.Needed && (one.Verdict == check.Fail || one.Verdict == check.Wait) {
			one.Verdict = check.Warn
		}
	}
	return findings
}

// begin judges cuInit.
func begin(f Facts, want Want) check.Finding {
	finding := check.Finding{ID: idInit, Source: "cuInit"}
	if f.Init.Code == 0 {
		finding.Verdict, finding.Observed = check.Pass, "CUDA "+version(f.Driver)
		if f.Loaded != "" {
			finding.Observed += ", " + f.Loaded
		}
		return finding
	}
	m, known := answers[f.Init.Code]
	if !known {
		m = meaning{verdict: check.Fail, class: check.Environment, observed: "cuInit fails", more: byDevice,
			hint: "look it up in NVIDIA's documentation of CUresult, and look into dmesg for NVRM lines"}
	}
	finding.Verdict, finding.Class, finding.Hint, finding.Expected = m.verdict, m.class, m.hint, "SUCCESS"
	finding.Observed = fmt.Sprintf("%s: %s", m.observed, f.Init)
	if f.Detail != "" {
		finding.Observed += ": " + prose.Line(f.Detail, shown)
	}
	if m.more != nil {
		m.more(&finding, f, want)
	}
	return finding
}

// version is 12.8 for 12080.
func version(r Reading[int]) string {
	number, ok := r.Get()
	if !ok {
		return "of an unknown version (" + r.Why.String() + ")"
	}
	return fmt.Sprintf("%d.%d", number/1000, number%1000/10)
}

// exam is one check of a look.
type exam struct {
	check.Sheet
	facts Facts
	want  Want
}

// devices finds the GPUs that NVML shows and CUDA doesn't. NVIDIA's guide to MIG says that CUDA shows a process one
// instance at most, and then no whole GPU: which one depends on what is visible, so nothing is missing then.
func devices(f Facts, want Want) []check.Finding {
	e := exam{check.Sheet{Each: check.Finding{ID: idDevices, Source: "cuDeviceGetCount, cuDeviceGetUuid"}}, f, want}
	count, counted := f.Count.Get()
	at, unread := f.byUUID()
	switch {
	case !counted:
		e.Say(check.Unknown, check.Node, "devices can't be counted: "+f.Count.Why.String(), "", hintReset)
	case want.MIG && count > 0:
		e.Pass(fmt.Sprintf("%d %s: under MIG a process has one instance at most", count, prose.Noun(count, "device")))
	case len(unread) > 0:
		e.Say(check.Unknown, check.Node, "which GPUs they are can't be read: "+prose.List(unread, mostShown, ", "), "", hintReset)
	default:
		for _, gpu := range want.GPUs {
			if _, shows := at[bare(gpu.UUID)]; gpu.UUID != "" && !shows {
				e.lacks("NVML shows it, and CUDA does not").Device = &gpu
			}
		}
	}
	if wanted := len(want.GPUs); len(e.Found) == 0 && count < wanted {
		e.lacks(fmt.Sprintf("%d of the %d GPUs that NVML shows", count, wanted)).Expected = strconv.Itoa(wanted)
	}
	if len(e.Found) == 0 {
		e.Pass(fmt.Sprintf("%d %s", count, prose.Noun(count, "device")))
	}
	return e.Found
}

// lacks tells of GPUs that CUDA does not show.
func (e *exam) lacks(observed string) *check.Finding {
	if visible := e.facts.Visible; visible != nil {
		return e.Fail(check.User, fmt.Sprintf("%s; CUDA_VISIBLE_DEVICES is %q", observed, prose.Cut(*visible, 80)), "",
			"list each GPU in CUDA_VISIBLE_DEVICES as CUDA counts them, or by UUID (nvidia-smi -L): it shows none behind an entry that it can't find")
	}
	return e.Fail(check.Environment, observed, "",
		"see that the job's cgroup or container has the /dev/nvidia* of this GPU, and run nvidia-smi -q for whether it needs a reset; look into dmesg for NVRM lines")
}

// peers finds GPUs that NVLink joins, by NVML, and of which one can't use the memory of the other nevertheless: NCCL
// goes through the host's memory then, without a word. GPUs that only PCIe joins often can't, and nothing is wrong.
func peers(f Facts, want Want) []check.Finding {
	e := exam{check.Sheet{Each: check.Finding{ID: idPeers, Source: "cuDeviceCanAccessPeer"}}, f, want}
	e.channels()
	var apart, unread []string
	asked := 0
	at, _ := f.byUUID()
	for _, pair := range want.Joined {
		a, shownA := at[bare(pair[0])]
		b, shownB := at[bare(pair[1])]
		if want.MIG || !shownA || !shownB {
			continue
		}
		asked++
		names := want.name(pair[0]) + " and " + want.name(pair[1])
		if reach, ok := f.reach(a, b).Get(); !ok {
			unread = append(unread, names+": "+f.reach(a, b).Why.String())
		} else if !reach {
			apart = append(apart, names)
		}
	}
	if len(apart) > 0 {
		e.Warn(check.Node, "joined by NVLink, and can't use each other's memory: "+prose.List(apart, mostShown, "; "), "all pairs that NVLink joins",
			"compare nvidia-smi topo -p2p rw, and restart nvidia-fabricmanager or reboot; in a virtual machine, see that it has whole NVLink partitions: NCCL would go through the host's memory without a word").Strict = true
	}
	if len(unread) > 0 {
		e.Say(check.Unknown, check.Node, "whether GPUs reach each other can't be read: "+prose.List(unread, mostShown, "; "), "", hintReset)
	}
	switch {
	case len(e.Found) > 0:
	case asked == 0:
		e.Skip("CUDA shows no GPUs that NVLink joins")
	default:
		e.Pass(fmt.Sprintf("%d %s", asked, prose.Noun(asked, "pair")))
	}
	return e.Found
}

// channels looks for the file that lets GPUs of several nodes use each other's memory. NVIDIA's guide to IMEX: the
// calls that need a channel fail without, and nobody but the operator makes one.
func (e *exam) channels() {
	opened, all := e.facts.opened(channels)
	if !e.want.Fabric || opened > 0 {
		return
	}
	observed := "there is no IMEX channel"
	if all > 0 {
		observed = fmt.Sprintf("none of %d IMEX %s can be opened", all, prose.Noun(all, "channel"))
	}
	e.Warn(check.Node, observed+": GPUs of other nodes can't be reached over NVLink", channels+"/channel0",
		"make a channel on each node (NVreg_CreateImexChannel0=1, or Slurm's switch/nvidia_imex), bring it into the container, and see that nvidia-imex runs: NCCL would go over the network").Strict = true
}

// mostShown is how many pairs, or devices, are named.
const mostShown = 4

// name is what people call a GPU.
func (w Want) name(uuid string) string {
	for _, gpu := range w.GPUs {
		if gpu.UUID == uuid {
			return gpu.String()
		}
	}
	return uuid
}

// byUUID returns the ordinals of the devices, and which of them don't say who they are.
func (f Facts) byUUID() (at map[string]int, unread []string) {
	at = make(map[string]int)
	for _, d := range f.Devices {
		if uuid, ok := d.UUID.Get(); ok {
			at[uuid] = d.Ordinal
		} else {
			unread = append(unread, fmt.Sprintf("device %d: %s", d.Ordinal, d.UUID.Why))
		}
	}
	return at, unread
}

// reach is whether two devices reach each other: the first answer, of both ways, that isn't yes.
func (f Facts) reach(a, b int) Reading[bool] {
	for _, p := range f.Apart {
		if p.A == a && p.B == b || p.A == b && p.B == a {
			return p.Access
		}
	}
	return reading(Answer{}, true)
}

// bare is a UUID as CUDA has it, of one as NVML writes it.
func bare(uuid string) string {
	if _, rest, found := strings.Cut(uuid, "-"); found && len(uuid) > 36 {
		uuid = rest
	}
	return strings.ToLower(uuid)
}
