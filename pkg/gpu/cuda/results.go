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
	hintMPS = "check that nvidia-cuda-mps-control runs for this user with the same CUDA_MPS_PIPE_DIRECTORY; or unset the variable and switch " +
		"the GPUs from EXCLUSIVE_PROCESS to DEFAULT (nvidia-smi -c 0)"
	hintReset  = "drain the node, see dmesg for NVRM lines, and reset the GPUs (nvidia-smi --gpu-reset) or reboot"
	hintReload = "see dmesg for NVRM and nvidia-uvm lines; with no program on the GPUs, reload the module (modprobe -r nvidia_uvm, modprobe " +
		"nvidia_uvm; needed after a suspend) or reboot; if dmesg has \"request_free_mem_region() err -34\", set options nvidia_uvm uvm_disable_hmm=1"
)

// knownResults maps the known results of cuInit to their interpretation. Numbers, names and
// meanings are those in cuda.h of CUDA 11.4 to 13.1, unless another source is given. Results that
// cuInit never returns (of launches, modules, streams) are left out. 35 is missing on purpose:
// INSUFFICIENT_DRIVER is a result of the runtime (cudaError_t) and never of the driver.
var knownResults = map[ResultCode]resultMeaning{
	LibraryNotFound: {"LIBRARY_NOT_FOUND", check.Fail, check.ClassEnvironment, "cannot load CUDA's libcuda.so.1, although NVML's library can be loaded",
		"in a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility (utility alone gives nvidia-smi without CUDA), or run it with --nv; " +
			"on the node itself, install the CUDA part of the NVIDIA driver", nil},
	FunctionNotFound: {"FUNCTION_NOT_FOUND", check.Fail, check.ClassEnvironment, "the loaded libcuda.so.1 has no cuInit", hintDriverLibrary, addLibraryDetails},
	NoCgo:            {"NO_CGO", check.Skip, "", "this bringupd was built without cgo and cannot query CUDA", "", nil},
	Unresponsive: {"DRIVER_UNRESPONSIVE", check.Fail, check.ClassNode, "the CUDA driver does not respond",
		"drain and reboot the node: processes that use a hung driver cannot be killed", nil},
	ProbeDied: {"PROBE_DIED", check.Unknown, check.ClassEnvironment, "the process that queried the CUDA driver died",
		"run a small CUDA program on the node (nvidia-smi uses only NVML): if it crashes too, the NVIDIA driver or its libraries are broken", addLibraryDetails},
	0: {name: "SUCCESS"},

	// cuda.h describes it as "memory or other resources". CUDA reserves as many addresses as all GPUs
	// and the host have memory, so a limit of the address space is sufficient to cause it
	// (NVIDIA/cuda-python pull request 2458 has measurements).
	2: {"OUT_OF_MEMORY", check.Fail, check.ClassEnvironment, "cuInit ran out of memory",
		"raise the address space limit (ulimit -v unlimited), and check the free memory of the job's cgroup: host memory is short, not GPU memory", nil},
	3: {"NOT_INITIALIZED", check.Fail, check.ClassEnvironment, "the CUDA driver cannot start", hintReload, addDeviceDetails},
	34: {"STUB_LIBRARY", check.Fail, check.ClassEnvironment, "the loaded libcuda.so.1 is the toolkit's stub, which is only for linking",
		"remove the toolkit's lib64/stubs from LD_LIBRARY_PATH", addLibraryDetails},
	36: {"CALL_REQUIRES_NEWER_DRIVER", check.Fail, check.ClassEnvironment, "the NVIDIA driver is too old for this libcuda", hintDriverLibrary, addLibraryDetails},
	46: {"DEVICE_UNAVAILABLE", check.Fail, check.ClassEnvironment, "a GPU is not available: in exclusive or prohibited mode, or in use by another job",
		"find the processes that use it (nvidia-smi), and set its compute mode to DEFAULT (nvidia-smi -c 0)", nil},
	100: {"NO_DEVICE", check.Fail, check.ClassEnvironment, "CUDA finds no GPU",
		"check that the job's cgroup or container has the device files of its GPUs (/dev/nvidia0 …), and see nvidia-smi -q for a GPU that needs a reset or has MIG but no instance",
		addVisibilityDetails},
	101: {"INVALID_DEVICE", check.Fail, check.ClassEnvironment, "a GPU that CUDA needs is missing or cannot be used",
		"see nvidia-smi -q and the NVRM lines in dmesg for a GPU that needs a reset", addVisibilityDetails},
	102: {"DEVICE_NOT_LICENSED", check.Fail, check.ClassEnvironment, "a virtual GPU has no license",
		"check its license (nvidia-smi -q) and the service nvidia-gridd", nil},
	214: {"ECC_UNCORRECTABLE", check.Fail, check.ClassNode, "a GPU had an uncorrectable memory error", hintReset, nil},
	220: {"NVLINK_UNCORRECTABLE", check.Fail, check.ClassNode, "a GPU had an uncorrectable NVLink error", hintReset, nil},
	// A seccomp profile of a container that refuses a system call also causes it
	// (abetlen/llama-cpp-python issue 645).
	304: {"OPERATING_SYSTEM", check.Fail, check.ClassEnvironment,
		"the operating system rejected a system call of the CUDA driver",
		"in a container, check its seccomp profile and capabilities; see dmesg and the job's limits (ulimit -a)", addDeviceDetails},
	// A container that has lost its devices when systemd was reloaded causes it, for example
	// (ollama/ollama issue 11373).
	800: {"NOT_PERMITTED", check.Fail, check.ClassEnvironment, "the CUDA driver has no permission to use the GPUs",
		"check whether the job's cgroup or container still has the /dev/nvidia* devices, and restart it: a systemd reload may remove them", addDeviceDetails},
	801: {"NOT_SUPPORTED", check.Fail, check.ClassEnvironment, "the CUDA driver does not support this system or its GPUs",
		"see dmesg for whether the driver supports these GPUs: newer ones need the open kernel modules; a virtual GPU needs a compute profile", nil},
	// Sources: jax-ml/jax pull request 34113 and pytorch/pytorch issue 35710. In
	// huggingface/huggingface_hub issue 4134 a node waits forever while nvidia-smi works.
	802: {"SYSTEM_NOT_READY", check.Wait, check.ClassEnvironment, "CUDA waits for the initialisation of the node's NVSwitches",
		"check that nvidia-fabricmanager runs in the same version as the driver (systemctl status nvidia-fabricmanager; Fabric in nvidia-smi -q)", nil},
	803: {"SYSTEM_DRIVER_MISMATCH", check.Fail, check.ClassEnvironment, "the version of libcuda does not match the loaded NVIDIA driver",
		hintDriverLibrary + "; after a driver update, reboot the node", addLibraryDetails},
	// According to NVIDIA's guide to CUDA compatibility, the package is for data center GPUs and a few
	// others.
	804: {"COMPAT_NOT_SUPPORTED_ON_DEVICE", check.Fail, check.ClassEnvironment, "the loaded libcuda is from a forward compatibility package, which these GPUs do not support",
		hintDriverLibrary + "; or update the node's NVIDIA driver", addLibraryDetails},
	805: {"MPS_CONNECTION_FAILED", check.Fail, check.ClassEnvironment, "MPS is requested, but its daemon cannot be reached", hintMPS, nil},
	806: {"MPS_RPC_FAILURE", check.Fail, check.ClassEnvironment, "the MPS server gave an invalid response", hintMPS, nil},
	807: {"MPS_SERVER_NOT_READY", check.Wait, check.ClassEnvironment, "the MPS server does not accept clients yet", hintMPS, nil},
	808: {"MPS_MAX_CLIENTS_REACHED", check.Fail, check.ClassEnvironment, "the MPS server has reached its maximum number of clients", hintMPS, nil},
	809: {"MPS_MAX_CONNECTIONS_REACHED", check.Fail, check.ClassEnvironment, "the MPS server has reached its maximum number of connections", hintMPS, nil},
	810: {"MPS_CLIENT_TERMINATED", check.Fail, check.ClassEnvironment, "the MPS server terminated its clients", hintMPS, nil},
	999: {"UNKNOWN", check.Fail, check.ClassEnvironment, "the CUDA driver cannot start, for an unknown reason", hintReload, addDeviceDetails},
}

// hintDriverLibrary is the hint for a libcuda that does not belong to the loaded driver.
const hintDriverLibrary = "use the libcuda.so.1 of the loaded NVIDIA driver: remove directories with another one (such as /usr/local/cuda/compat) from " +
	"LD_LIBRARY_PATH and /etc/ld.so.conf.d, and let the container runtime mount it"

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
		f.Observed += "; loaded: " + facts.Loaded
	}
	if want.Driver != "" {
		f.Observed += "; NVIDIA driver: " + want.Driver
	}
}

// addVisibilityDetails adds why CUDA shows no GPU: the job's own CUDA_VISIBLE_DEVICES, which makes
// it a user's mistake, or device files of MIG instances or of the driver that cannot be opened.
func addVisibilityDetails(f *check.Finding, facts Facts, want Expectation) {
	if facts.VisibleDevices != nil {
		f.Class = check.ClassUser
		f.Observed += fmt.Sprintf("; CUDA_VISIBLE_DEVICES is %q", textutil.TruncateText(*facts.VisibleDevices, 80))
		f.Hint = "list only GPUs of this job in CUDA_VISIBLE_DEVICES (nvidia-smi -L), or unset it"
		return
	}
	if opened, all := facts.countOpened(capsDir); want.Partitioned && opened == 0 {
		f.Observed += fmt.Sprintf("; the GPUs use MIG, but none of %d files in %s can be opened", all, capsDir)
		f.Hint = "give the job's cgroup or container access to its instances' files in " + capsDir + " (NVIDIA's runtime and Slurm's AutoDetect=nvml do)"
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
		f.Observed += "; the kernel module nvidia_uvm is not loaded"
		f.Hint = "load it now and at each boot (modprobe nvidia_uvm; nvidia-modprobe -u -c 0 also creates its device file)"
	case file.Reason == "ENOENT":
		f.Observed += "; " + uvmPath + " does not exist"
		f.Hint = "on the node, create it (nvidia-modprobe -u -c 0); in a container, mount it with NVIDIA's runtime or --nv"
	case file.Reason == "EPERM" || file.Reason == "EACCES":
		f.Observed += fmt.Sprintf("; cannot open %s: %s", uvmPath, file.Reason)
		f.Hint = "give the job access: EPERM comes from a cgroup (Slurm's cgroup_allowed_devices_file, a container's --device), EACCES from the file mode (use 666)"
	default:
		f.Observed += fmt.Sprintf("; cannot open %s: %s", uvmPath, file.Reason)
		f.Hint = "create it again (nvidia-modprobe -u -c 0), also in the container: it does not belong to the loaded module"
	}
}
