package cuda

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Want is what CUDA should show a job, according to NVML and the job's options.
type Want struct {
	Needed bool           // the job needs GPUs
	GPUs   []check.Device // the job's GPUs according to NVML; one without a UUID is only counted
	Joined [][2]string    // UUIDs of pairs that are connected by NVLink, according to NVML
	Driver string         // version of the loaded driver: 570.86.15
	MIG    bool           // at least one of the GPUs is partitioned
	Fabric bool           // the GPUs have joined an NVLink fabric of several nodes
}

// The IDs of the checks.
const (
	idInit    = "cuda.init"
	idDevices = "cuda.devices"
	idPeers   = "cuda.peers"
)

// IDs returns the IDs of all checks that Judge makes.
func IDs() []string { return []string{idInit, idDevices, idPeers} }

// Judge compares the facts with what the job expects, and returns the findings. If cuInit has
// failed, it is the only finding. If the job needs no GPUs, the worst verdict is Warn.
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

// begin returns the finding about cuInit.
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

// version formats 12080 as 12.8.
func version(r Reading[int]) string {
	number, ok := r.Get()
	if !ok {
		return "of an unknown version (" + r.Why.String() + ")"
	}
	return fmt.Sprintf("%d.%d", number/1000, number%1000/10)
}

// exam collects the findings of one check.
type exam struct {
	check.Sheet
	facts Facts
	want  Want
}

// devices reports GPUs that NVML shows but CUDA does not. According to NVIDIA's guide to MIG, CUDA
// shows a process at most one instance, and then no whole GPU. Which one depends on
// CUDA_VISIBLE_DEVICES, so under MIG one device is enough.
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

// lacks adds a finding about GPUs that CUDA does not show, and returns it. If CUDA_VISIBLE_DEVICES
// is set it is the user's mistake, and otherwise one of the environment.
func (e *exam) lacks(observed string) *check.Finding {
	if visible := e.facts.Visible; visible != nil {
		return e.Fail(check.User, fmt.Sprintf("%s; CUDA_VISIBLE_DEVICES is %q", observed, prose.Cut(*visible, 80)), "",
			"list each GPU in CUDA_VISIBLE_DEVICES as CUDA counts them, or by UUID (nvidia-smi -L): it shows none behind an entry that it can't find")
	}
	return e.Fail(check.Environment, observed, "",
		"see that the job's cgroup or container has the /dev/nvidia* of this GPU, and run nvidia-smi -q for whether it needs a reset; look into dmesg for NVRM lines")
}

// peers reports GPUs that are connected by NVLink, according to NVML, but cannot access each
// other's memory: NCCL then silently uses the host's memory. Many GPUs that are connected only by
// PCIe cannot either; that is not a fault.
func peers(f Facts, want Want) []check.Finding {
	e := exam{check.Sheet{Each: check.Finding{ID: idPeers, Source: "cuDeviceCanAccessPeer"}}, f, want}
	e.channels()
	var apart, unread []string
	asked := 0
	at, _ := f.byUUID()
	// Sort the pairs that CUDA shows into those without access and those that could not be queried.
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
	// Report both lists. A pair without access is only a warning, unless the checks are strict.
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

// channels reports that no IMEX channel can be opened. A channel is the device file by which GPUs
// access the memory of GPUs on other nodes. According to NVIDIA's guide to IMEX, calls that need a
// channel fail without one, and only an administrator can make it.
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

// mostShown is the maximum number of pairs or devices that a finding names.
const mostShown = 4

// name returns the display name of the GPU with this UUID, or the UUID if the GPU is unknown.
func (w Want) name(uuid string) string {
	for _, gpu := range w.GPUs {
		if gpu.UUID == uuid {
			return gpu.String()
		}
	}
	return uuid
}

// byUUID returns the ordinals of the devices by UUID, and a description of each device without a
// readable UUID.
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

// reach returns whether two devices can access each other's memory. If they are in f.Apart, it
// returns the first entry for either direction.
func (f Facts) reach(a, b int) Reading[bool] {
	for _, p := range f.Apart {
		if p.A == a && p.B == b || p.A == b && p.B == a {
			return p.Access
		}
	}
	return reading(Answer{}, true)
}

// bare converts a UUID of NVML to CUDA's format: without the prefix GPU- or MIG-, in lower case.
func bare(uuid string) string {
	if _, rest, found := strings.Cut(uuid, "-"); found && len(uuid) > 36 {
		uuid = rest
	}
	return strings.ToLower(uuid)
}
