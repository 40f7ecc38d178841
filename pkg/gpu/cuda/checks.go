package cuda

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
)

// Expectation is what CUDA should show a job, according to NVML and the job's options.
type Expectation struct {
	NeedsGPUs bool // the job needs GPUs
	// the job's GPUs according to NVML; one without a UUID is only counted
	GPUs            []check.Device
	NVLinkPairs     [][2]string // UUIDs of pairs that are connected by NVLink, according to NVML
	Driver          string      // version of the loaded driver: 570.86.15
	Partitioned     bool        // at least one of the GPUs is partitioned
	MultiNodeFabric bool        // the GPUs have joined an NVLink fabric of several nodes
}

// The IDs of the checks.
const (
	idInit    = "cuda.init"
	idDevices = "cuda.devices"
	idPeers   = "cuda.peers"
)

// CheckIDs returns the IDs of all checks that CheckFacts makes.
func CheckIDs() []string { return []string{idInit, idDevices, idPeers} }

// CheckFacts compares the facts with what the job expects, and returns the findings. If cuInit has
// failed, it is the only finding. If the job needs no GPUs, the worst verdict is Warn.
func CheckFacts(f Facts, want Expectation) []check.Finding {
	if !want.NeedsGPUs && len(want.GPUs) == 0 {
		return []check.Finding{{ID: idInit, Verdict: check.Skip, Observed: "NVML shows no GPU that CUDA could use", Source: "NVML"}}
	}
	findings := []check.Finding{checkInit(f, want)}
	if f.Init.Code == 0 {
		findings = append(append(findings, checkDevices(f, want)...), checkPeers(f, want)...)
	}
	for i := range findings {
		if one := &findings[i]; !want.NeedsGPUs && (one.Verdict == check.Fail || one.Verdict == check.Wait) {
			one.Verdict = check.Warn
		}
	}
	return findings
}

// checkInit returns the finding about cuInit.
func checkInit(f Facts, want Expectation) check.Finding {
	finding := check.Finding{ID: idInit, Source: "cuInit"}
	if f.Init.Code == 0 {
		finding.Verdict, finding.Observed = check.Pass, "CUDA "+formatVersion(f.Driver)
		if f.Loaded != "" {
			finding.Observed += ", " + f.Loaded
		}
		return finding
	}
	m, known := knownResults[f.Init.Code]
	if !known {
		m = resultMeaning{verdict: check.Fail, class: check.ClassEnvironment, observed: "cuInit failed", refine: addDeviceDetails,
			hint: "see NVIDIA's documentation of CUresult, and dmesg for NVRM lines"}
	}
	finding.Verdict, finding.Class, finding.Hint, finding.Expected = m.verdict, m.class, m.hint, "cuInit succeeds"
	finding.Observed = fmt.Sprintf("%s: %s", m.observed, f.Init)
	if f.Detail != "" {
		finding.Observed += ": " + textutil.SingleLine(f.Detail, maxForeignText)
	}
	if m.refine != nil {
		m.refine(&finding, f, want)
	}
	return finding
}

// formatVersion formats 12080 as 12.8.
func formatVersion(r Reading[int]) string {
	number, ok := r.Get()
	if !ok {
		return "version unknown (" + r.Reason.String() + ")"
	}
	return fmt.Sprintf("%d.%d", number/1000, number%1000/10)
}

// cudaCheck collects the findings of one check.
type cudaCheck struct {
	check.FindingBuilder
	facts    Facts
	expected Expectation
}

// checkDevices reports GPUs that NVML shows but CUDA does not. According to NVIDIA's guide to MIG,
// CUDA shows a process at most one instance, and then no whole GPU. Which one depends on
// CUDA_VISIBLE_DEVICES, so under MIG one device is enough.
func checkDevices(f Facts, want Expectation) []check.Finding {
	e := cudaCheck{check.FindingBuilder{Template: check.Finding{ID: idDevices, Source: "cuDeviceGetCount, cuDeviceGetUuid"}}, f, want}
	count, counted := f.Count.Get()
	at, unread := f.ordinalsByUUID()
	switch {
	case !counted:
		e.AddFinding(check.Unknown, check.ClassNode, "cannot count the devices: "+f.Count.Reason.String(), "", hintReset)
	case want.Partitioned && count > 0:
		e.AddPass(fmt.Sprintf("%d %s; under MIG a process sees at most one instance", count, textutil.PluralForm(count, "device")))
	case len(unread) > 0:
		e.AddFinding(check.Unknown, check.ClassNode, "cannot read the UUIDs: "+textutil.JoinLimited(unread, maxListed, ", "), "", hintReset)
	default:
		for _, gpu := range want.GPUs {
			if _, shows := at[cudaUUID(gpu.UUID)]; gpu.UUID != "" && !shows {
				e.addMissingGPU("visible in NVML but not in CUDA").Device = &gpu
			}
		}
	}
	if wanted := len(want.GPUs); len(e.Findings) == 0 && count < wanted {
		e.addMissingGPU(fmt.Sprintf("%d of the %d GPUs that NVML shows", count, wanted)).Expected = strconv.Itoa(wanted)
	}
	if len(e.Findings) == 0 {
		e.AddPass(fmt.Sprintf("%d %s", count, textutil.PluralForm(count, "device")))
	}
	return e.Findings
}

// addMissingGPU adds a finding about GPUs that CUDA does not show, and returns it. If
// CUDA_VISIBLE_DEVICES is set it is the user's mistake, and otherwise one of the environment.
func (e *cudaCheck) addMissingGPU(observed string) *check.Finding {
	if visible := e.facts.VisibleDevices; visible != nil {
		return e.AddFailure(check.ClassUser, fmt.Sprintf("%s; CUDA_VISIBLE_DEVICES is %q", observed, textutil.TruncateText(*visible, 80)), "",
			"use CUDA's indices or UUIDs (nvidia-smi -L) in CUDA_VISIBLE_DEVICES: CUDA ignores all entries after an invalid one")
	}
	return e.AddFailure(check.ClassEnvironment, observed, "",
		"check that the job's cgroup or container has the /dev/nvidia* file of this GPU; see nvidia-smi -q for a needed reset, and dmesg for NVRM lines")
}

// checkPeers reports GPUs that are connected by NVLink, according to NVML, but cannot access each
// other's memory: NCCL then silently uses the host's memory. Many GPUs that are connected only by
// PCIe cannot either; that is not a fault.
func checkPeers(f Facts, want Expectation) []check.Finding {
	e := cudaCheck{check.FindingBuilder{Template: check.Finding{ID: idPeers, Source: "cuDeviceCanAccessPeer"}}, f, want}
	e.checkIMEXChannel()
	var apart, unread []string
	asked := 0
	at, _ := f.ordinalsByUUID()
	// Sort the pairs that CUDA shows into those without access and those that could not be queried.
	for _, pair := range want.NVLinkPairs {
		a, shownA := at[cudaUUID(pair[0])]
		b, shownB := at[cudaUUID(pair[1])]
		if want.Partitioned || !shownA || !shownB {
			continue
		}
		asked++
		names := want.displayName(pair[0]) + " and " + want.displayName(pair[1])
		if reach, ok := f.peerAccess(a, b).Get(); !ok {
			unread = append(unread, names+": "+f.peerAccess(a, b).Reason.String())
		} else if !reach {
			apart = append(apart, names)
		}
	}
	// Report both lists. A pair without access is only a warning, unless the checks are strict.
	if len(apart) > 0 {
		e.AddWarning(check.ClassNode, "connected by NVLink, but without access to each other's memory: "+textutil.JoinLimited(apart, maxListed, "; "), "access for all pairs connected by NVLink",
			"check nvidia-smi topo -p2p rw, and restart nvidia-fabricmanager or reboot; a virtual machine needs whole NVLink partitions: NCCL would silently use host memory").Strict = true
	}
	if len(unread) > 0 {
		e.AddFinding(check.Unknown, check.ClassNode, "cannot read the peer access of GPUs: "+textutil.JoinLimited(unread, maxListed, "; "), "", hintReset)
	}
	switch {
	case len(e.Findings) > 0:
	case asked == 0:
		e.AddSkip("CUDA shows no GPUs connected by NVLink")
	default:
		e.AddPass(fmt.Sprintf("%d %s", asked, textutil.PluralForm(asked, "pair")))
	}
	return e.Findings
}

// checkIMEXChannel reports that no IMEX channel can be opened. A channel is the device file by
// which GPUs access the memory of GPUs on other nodes. According to NVIDIA's guide to IMEX, calls
// that need a channel fail without one, and only an administrator can make it.
func (e *cudaCheck) checkIMEXChannel() {
	opened, all := e.facts.countOpened(imexChannelDir)
	if !e.expected.MultiNodeFabric || opened > 0 {
		return
	}
	observed := "no IMEX channel"
	if all > 0 {
		observed = fmt.Sprintf("none of %d IMEX %s can be opened", all, textutil.PluralForm(all, "channel"))
	}
	e.AddWarning(check.ClassNode, observed+": GPUs of other nodes cannot be reached over NVLink", imexChannelDir+"/channel0",
		"create a channel on each node (NVreg_CreateImexChannel0=1, or Slurm's switch/nvidia_imex), mount it into the container, and check that nvidia-imex runs: otherwise NCCL uses the network").Strict = true
}

// maxListed is the maximum number of pairs or devices that a finding names.
const maxListed = 4

// displayName returns the display name of the GPU with this UUID, or the UUID if the GPU is
// unknown.
func (w Expectation) displayName(uuid string) string {
	for _, gpu := range w.GPUs {
		if gpu.UUID == uuid {
			return gpu.String()
		}
	}
	return uuid
}

// ordinalsByUUID returns the ordinals of the devices by UUID, and a description of each device
// without a readable UUID.
func (f Facts) ordinalsByUUID() (at map[string]int, unread []string) {
	at = make(map[string]int)
	for _, d := range f.Devices {
		if uuid, ok := d.UUID.Get(); ok {
			at[uuid] = d.Ordinal
		} else {
			unread = append(unread, fmt.Sprintf("device %d: %s", d.Ordinal, d.UUID.Reason))
		}
	}
	return at, unread
}

// peerAccess returns whether two devices can access each other's memory. If they are in f.Apart, it
// returns the first entry for either direction.
func (f Facts) peerAccess(a, b int) Reading[bool] {
	for _, p := range f.InaccessiblePairs {
		if p.A == a && p.B == b || p.A == b && p.B == a {
			return p.Access
		}
	}
	return newReading(Result{}, true)
}

// cudaUUID converts a UUID of NVML to CUDA's format: without the prefix GPU- or MIG-, in lower
// case.
func cudaUUID(uuid string) string {
	if _, rest, found := strings.Cut(uuid, "-"); found && len(uuid) > 36 {
		uuid = rest
	}
	return strings.ToLower(uuid)
}
