package cuda

import (
	"fmt"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
)

// resultMeaning is the interpretation of a result of cuInit.
type resultMeaning struct {
	name     string // the name in cuda.h, without the prefix CUDA_ERROR_
	verdict  check.Verdict
	class    check.Class
	observed string
	hint     string
	// refines the finding and its hint by other facts; may be nil
	refine func(*check.Finding, Facts, Expectation)
}

const (
	hintMPS = "see that nvidia-cuda-mps-control runs, for this user, and that CUDA_MPS_PIPE_DIRECTORY is its own; or unset the variable and take " +
		"the GPUs out of EXCLUSIVE_PROCESS (nvidia-smi -c 0)"
	hintReset  = "drain the node, look into dmesg for NVRM lines, and reset the GPUs (nvidia-smi --gpu-reset) or reboot"
	hintReload = "look into dmesg for NVRM and nvidia-uvm lines and, with no program on the GPUs, reload the module (modprobe -r nvidia_uvm, modprobe " +
		"nvidia_uvm), as is needed after a suspend, or reboot; where dmesg has \"request_free_mem_region() err -34\", set options nvidia_uvm uvm_disable_hmm=1"
)

// knownResults maps the known results of cuInit to their interpretation. Numbers, names and
// meanings are those in cuda.h of CUDA 11.4 to 13.1, unless another source is given. Results that
// cuInit never returns (of launches, modules, streams) are left out. 35 is missing on purpose:
// INSUFFICIENT_DRIVER is a result of the runtime (cudaError_t) and never of the driver.
var knownResults = map[ResultCode]resultMeaning{
	LibraryNotFound: {"LIBRARY_NOT_FOUND", check.Fail, check.ClassEnvironment, "CUDA's libcuda.so.1 can't be loaded, though NVML's library can",
		"in a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility (with utility alone there is nvidia-smi, and no CUDA), or run it with --nv; " +
			"on the node itself, install the CUDA part of NVIDIA's driver", nil},
	FunctionNotFound: {"FUNCTION_NOT_FOUND", check.Fail, check.ClassEnvironment, "the libcuda.so.1 that is loaded has no cuInit", hintDriverLibrary, addLibraryDetails},
	NoCgo:            {"NO_CGO", check.Skip, "", "this bringupd was built without cgo, so it can't ask CUDA's driver", "", nil},
	Unresponsive: {"DRIVER_UNRESPONSIVE", check.Fail, check.ClassNode, "CUDA's driver does not answer",
		"drain and reboot the node: who asks a wedged driver can't even be killed", nil},
	ProbeDied: {"PROBE_DIED", check.Unknown, check.ClassEnvironment, "the process that asked CUDA's driver has died",
		"run a small CUDA program on the node (nvidia-smi asks NVML only): if it dies too, the driver or its libraries are broken", addLibraryDetails},
	0: {name: "SUCCESS"},

	// cuda.h describes it as "memory or other resources". CUDA reserves as many addresses as all GPUs
	// and the host have memory, so a limit of the address space is sufficient to cause it
	// (NVIDIA/cuda-python pull request 2458 has measurements).
	2: {"OUT_OF_MEMORY", check.Fail, check.ClassEnvironment, "cuInit gets no memory",
		"lift the limit of addresses (ulimit -v unlimited), and see how much memory the job's cgroup has left: it is the host's that is short, not a GPU's", nil},
	3: {"NOT_INITIALIZED", check.Fail, check.ClassEnvironment, "CUDA's driver can't begin", hintReload, addDeviceDetails},
	34: {"STUB_LIBRARY", check.Fail, check.ClassEnvironment, "the libcuda.so.1 that is loaded is the toolkit's stub, which is there to link with only",
		"take the toolkit's lib64/stubs out of LD_LIBRARY_PATH", addLibraryDetails},
	36: {"CALL_REQUIRES_NEWER_DRIVER", check.Fail, check.ClassEnvironment, "NVIDIA's driver is too old for this libcuda", hintDriverLibrary, addLibraryDetails},
	46: {"DEVICE_UNAVAILABLE", check.Fail, check.ClassEnvironment, "a GPU is not to be had now: in exclusive or prohibited mode, or another job's",
		"see who uses it (nvidia-smi), and set its compute mode to DEFAULT (nvidia-smi -c 0)", nil},
	100: {"NO_DEVICE", check.Fail, check.ClassEnvironment, "CUDA finds no GPU",
		"see that the job's cgroup or container has the /dev/nvidia0 and so on of its GPUs, and run nvidia-smi -q for one that needs a reset, or is cut up (MIG) and has no instance",
		addVisibilityDetails},
	101: {"INVALID_DEVICE", check.Fail, check.ClassEnvironment, "a GPU that CUDA looks for is not there, or can't be used",
		"run nvidia-smi -q, and look into dmesg for NVRM lines of one that needs a reset", addVisibilityDetails},
	102: {"DEVICE_NOT_LICENSED", check.Fail, check.ClassEnvironment, "a virtual GPU has no license",
		"see nvidia-smi -q for its license, and the service nvidia-gridd", nil},
	214: {"ECC_UNCORRECTABLE", check.Fail, check.ClassNode, "a GPU has met an uncorrectable memory error", hintReset, nil},
	220: {"NVLINK_UNCORRECTABLE", check.Fail, check.ClassNode, "a GPU has met an uncorrectable NVLink error", hintReset, nil},
	// A seccomp profile of a container that refuses a system call also causes it
	// (abetlen/llama-cpp-python issue 645).
	304: {"OPERATING_SYSTEM", check.Fail, check.ClassEnvironment, "the operating system refuses CUDA's driver a call",
		"in a container, see its seccomp profile and its capabilities; look into dmesg, and at the limits of the job (ulimit -a)", addDeviceDetails},
	// A container that has lost its devices when systemd was reloaded causes it, for example
	// (ollama/ollama issue 11373).
	800: {"NOT_PERMITTED", check.Fail, check.ClassEnvironment, "CUDA's driver is not permitted to use the GPUs",
		"see whether the job's cgroup or container still has the /dev/nvidia* devices, and start it again: a reload of systemd may take them away", addDeviceDetails},
	801: {"NOT_SUPPORTED", check.Fail, check.ClassEnvironment, "CUDA's driver does not support this system, or its GPUs",
		"see in dmesg whether the driver supports these GPUs: newer ones need its open kernel modules; a virtual GPU needs a profile for compute", nil},
	// Sources: jax-ml/jax pull request 34113 and pytorch/pytorch issue 35710. In
	// huggingface/huggingface_hub issue 4134 a node waits forever while nvidia-smi works.
	802: {"SYSTEM_NOT_READY", check.Wait, check.ClassEnvironment, "the node's NVSwitches are not set up, and CUDA waits for that",
		"see that nvidia-fabricmanager runs, in the driver's own version (systemctl status nvidia-fabricmanager; nvidia-smi -q shows the state as Fabric)", nil},
	803: {"SYSTEM_DRIVER_MISMATCH", check.Fail, check.ClassEnvironment, "libcuda is of another version than the driver that is loaded, and does not fit it",
		hintDriverLibrary + "; after an update of the driver, reboot the node", addLibraryDetails},
	// According to NVIDIA's guide to CUDA compatibility, the package is for data center GPUs and a few
	// others.
	804: {"COMPAT_NOT_SUPPORTED_ON_DEVICE", check.Fail, check.ClassEnvironment, "the libcuda that is loaded is of a forward compatibility package, which these GPUs don't support",
		hintDriverLibrary + "; or have the node's driver updated", addLibraryDetails},
	805: {"MPS_CONNECTION_FAILED", check.Fail, check.ClassEnvironment, "MPS is asked for, and its daemon can't be reached", hintMPS, nil},
	806: {"MPS_RPC_FAILURE", check.Fail, check.ClassEnvironment, "the MPS server does not answer as it should", hintMPS, nil},
	807: {"MPS_SERVER_NOT_READY", check.Wait, check.ClassEnvironment, "the MPS server takes no clients yet", hintMPS, nil},
	808: {"MPS_MAX_CLIENTS_REACHED", check.Fail, check.ClassEnvironment, "the MPS server has as many clients as it can have", hintMPS, nil},
	809: {"MPS_MAX_CONNECTIONS_REACHED", check.Fail, check.ClassEnvironment, "the MPS server has as many connections as it can have", hintMPS, nil},
	810: {"MPS_CLIENT_TERMINATED", check.Fail, check.ClassEnvironment, "the MPS server has ended its clients", hintMPS, nil},
	999: {"UNKNOWN", check.Fail, check.ClassEnvironment, "CUDA's driver can't begin, and does not know why", hintReload, addDeviceDetails},
}

// hintDriverLibrary is the hint for a libcuda that does not belong to the loaded driver.
const hintDriverLibrary = "use the libcuda.so.1 of the driver that is loaded: take what has another one (a compat folder, as /usr/local/cuda/compat) out of " +
	"LD_LIBRARY_PATH and /etc/ld.so.conf.d, and let the container's runtime bring it in"

// newResult returns an Result with this package's name for the code, or CODE_<number> if it is
// unknown.
func newResult(code ResultCode) Result {
	if m, known := knownResults[code]; known {
		return Result{code, m.name}
	}
	return Result{code, fmt.Sprintf("CODE_%d", code)}
}

// addLibraryDetails adds the path of the loaded library to the finding, and the version of the
// driver that it should match.
func addLibraryDetails(f *check.Finding, facts Facts, want Expectation) {
	if facts.Loaded != "" {
		f.Observed += "; it is " + facts.Loaded
	}
	if want.Driver != "" {
		f.Observed += "; the driver is " + want.Driver
	}
}

// addVisibilityDetails adds why CUDA shows no GPU: the job's own CUDA_VISIBLE_DEVICES, which makes
// it a user's mistake, or device files of MIG instances or of the driver that cannot be opened.
func addVisibilityDetails(f *check.Finding, facts Facts, want Expectation) {
	if facts.VisibleDevices != nil {
		f.Class = check.ClassUser
		f.Observed += fmt.Sprintf("; CUDA_VISIBLE_DEVICES is %q", textutil.TruncateText(*facts.VisibleDevices, 80))
		f.Hint = "list GPUs in CUDA_VISIBLE_DEVICES that this job has (nvidia-smi -L), or unset it"
		return
	}
	if opened, all := facts.countOpened(capsDir); want.Partitioned && opened == 0 {
		f.Observed += fmt.Sprintf("; GPUs are cut up (MIG), and none of %d files in %s can be opened", all, capsDir)
		f.Hint = "let the job's cgroup or container use the files in " + capsDir + " of its instances (NVIDIA's runtime and Slurm's AutoDetect=nvml do)"
		return
	}
	addDeviceDetails(f, facts, want)
}

// addDeviceDetails adds what is wrong with /dev/nvidia-uvm, if anything is. CUDA needs this file,
// and NVML does not. In pytorch/pytorch issue 49081 and ollama/ollama issue 8638 it is missing, or
// stale after a suspend.
func addDeviceDetails(f *check.Finding, facts Facts, _ Expectation) {
	file := facts.deviceFile(uvmPath)
	switch {
	case file.Reason == "":
		return
	case facts.UVMLoaded != nil && !*facts.UVMLoaded:
		f.Observed += "; the kernel's module nvidia_uvm is not loaded"
		f.Hint = "load it (modprobe nvidia_uvm; nvidia-modprobe -u -c 0 makes its device file too), and have it loaded at each boot"
	case file.Reason == "ENOENT":
		f.Observed += "; there is no " + uvmPath
		f.Hint = "on the node, make it (nvidia-modprobe -u -c 0); in a container, have it brought in by NVIDIA's runtime, or --nv"
	case file.Reason == "EPERM" || file.Reason == "EACCES":
		f.Observed += fmt.Sprintf("; %s can't be opened: %s", uvmPath, file.Reason)
		f.Hint = "let the job use it: EPERM is a cgroup's (cgroup_allowed_devices_file of Slurm, --device of a container), EACCES the mode of the file (666)"
	default:
		f.Observed += fmt.Sprintf("; %s can't be opened: %s", uvmPath, file.Reason)
		f.Hint = "make it again (nvidia-modprobe -u -c 0), in the container too: it is not that of the module that is loaded"
	}
}
