//go:build linux && cgo

package gpu

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// libraryName is what the loader looks for where no file is named.
const libraryName = "libnvidia-ml.so.1"

// openLibrary returns NVML as that file has it, or as the loader finds it. The
// file is not opened before Init.
func openLibrary(path string) library {
	if path == "" {
		return nvmlLibrary{nvml.New()}
	}
	return nvmlLibrary{nvml.New(nvml.WithLibraryPath(path))}
}

// whyNotLoaded asks the loader once more, as go-nvml does not pass on what it
// said.
func whyNotLoaded(path string) string {
	if path == "" {
		path = libraryName
	}
	lib := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
	if err := lib.Open(); err != nil {
		return err.Error()
	}
	_ = lib.Close()
	return ""
}

// nvmlLibrary is a library over go-nvml.
type nvmlLibrary struct{ api nvml.Interface }

var _ library = nvmlLibrary{}

func (l nvmlLibrary) Init() Return     { return named(l.api.Init()) }
func (l nvmlLibrary) Shutdown() Return { return named(l.api.Shutdown()) }
func (l nvmlLibrary) Has(function string) bool {
	return l.api.Extensions().LookupSymbol(function) == nil
}

func (l nvmlLibrary) Device(index int) (device, Return) {
	handle, ret := l.api.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, named(ret)
	}
	return nvmlDevice{handle}, Success
}

func (l nvmlLibrary) DriverVersion() (string, Return) { return answer(l.api.SystemGetDriverVersion()) }
func (l nvmlLibrary) CUDAVersion() (int, Return)      { return answer(l.api.SystemGetCudaDriverVersion()) }
func (l nvmlLibrary) NVMLVersion() (string, Return)   { return answer(l.api.SystemGetNVMLVersion()) }
func (l nvmlLibrary) DeviceCount() (int, Return)      { return answer(l.api.DeviceGetCount()) }

// answer names what a call returned.
func answer[T any](value T, ret nvml.Return) (T, Return) { return value, named(ret) }

// returns are nvmlReturn_t without their prefix. go-nvml has names too, but asks
// the library for them where one is loaded, and that answers in sentences.
var returns = map[nvml.Return]Return{
	nvml.SUCCESS:                         Success,
	nvml.ERROR_UNINITIALIZED:             Uninitialized,
	nvml.ERROR_INVALID_ARGUMENT:          InvalidArgument,
	nvml.ERROR_NOT_SUPPORTED:             NotSupported,
	nvml.ERROR_NO_PERMISSION:             NoPermission,
	nvml.ERROR_ALREADY_INITIALIZED:       "ALREADY_INITIALIZED",
	nvml.ERROR_NOT_FOUND:                 "NOT_FOUND",
	nvml.ERROR_INSUFFICIENT_SIZE:         "INSUFFICIENT_SIZE",
	nvml.ERROR_INSUFFICIENT_POWER:        "INSUFFICIENT_POWER",
	nvml.ERROR_DRIVER_NOT_LOADED:         DriverNotLoaded,
	nvml.ERROR_TIMEOUT:                   "TIMEOUT",
	nvml.ERROR_IRQ_ISSUE:                 "IRQ_ISSUE",
	nvml.ERROR_LIBRARY_NOT_FOUND:         LibraryNotFound,
	nvml.ERROR_FUNCTION_NOT_FOUND:        FunctionNotFound,
	nvml.ERROR_CORRUPTED_INFOROM:         "CORRUPTED_INFOROM",
	nvml.ERROR_GPU_IS_LOST:               GPUIsLost,
	nvml.ERROR_RESET_REQUIRED:            ResetRequired,
	nvml.ERROR_OPERATING_SYSTEM:          OperatingSystem,
	nvml.ERROR_LIB_RM_VERSION_MISMATCH:   LibRMVersion,
	nvml.ERROR_IN_USE:                    "IN_USE",
	nvml.ERROR_MEMORY:                    "MEMORY",
	nvml.ERROR_NO_DATA:                   "NO_DATA",
	nvml.ERROR_VGPU_ECC_NOT_SUPPORTED:    "VGPU_ECC_NOT_SUPPORTED",
	nvml.ERROR_INSUFFICIENT_RESOURCES:    "INSUFFICIENT_RESOURCES",
	nvml.ERROR_FREQ_NOT_SUPPORTED:        "FREQ_NOT_SUPPORTED",
	nvml.ERROR_ARGUMENT_VERSION_MISMATCH: versionMismatch,
	nvml.ERROR_DEPRECATED:                deprecated,
	nvml.ERROR_NOT_READY:                 "NOT_READY",
	nvml.ERROR_GPU_NOT_FOUND:             "GPU_NOT_FOUND",
	nvml.ERROR_INVALID_STATE:             "INVALID_STATE",
	nvml.ERROR_RESET_TYPE_NOT_SUPPORTED:  "RESET_TYPE_NOT_SUPPORTED",
	nvml.ERROR_UNKNOWN:                   UnknownError,
}

// named returns our name for what a call returned; of one that is newer than
// this list, its number.
func named(ret nvml.Return) Return {
	if name, found := returns[ret]; found {
		return name
	}
	return Return(fmt.Sprintf("CODE_%d", int32(ret)))
}
