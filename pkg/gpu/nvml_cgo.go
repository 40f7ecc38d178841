//go:build linux && cgo

package gpu

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// nvmlLibrary implements deviceLibrary by NVML. The library is not loaded before initNVML.
//
// All functions of NVML except Init may be called only after a successful Init, and only if the
// library has them. Otherwise the loader ends the process.
type nvmlLibrary struct{ *collector }

var _ deviceLibrary = nvmlLibrary{}

func openLibrary() deviceLibrary {
	returnNames() // must come before a library is loaded
	return nvmlLibrary{newCollector(nvml.New(), os.Stderr)}
}

func (d nvmlLibrary) inspectGPUs(tell func(message)) Facts {
	facts := d.collectFacts(func(p Progress) { tell(message{Progress: &p}) })
	if facts.Init == LibraryNotFound {
		facts.Detail = loadError()
	}
	return facts
}

func (d nvmlLibrary) watchEvents(ctx context.Context, what request, tell func(message)) error {
	switch ret := d.initNVML(); ret {
	case Success:
		return watchGPUs(ctx, d.collector, what, tell)
	case LibraryNotFound:
		return fmt.Errorf("cannot use NVML: %s: %s", ret, loadError())
	default:
		return fmt.Errorf("cannot use NVML: %s", ret)
	}
}

func (nvmlLibrary) inspectCUDA() CUDAFacts { return inspectCUDA() }

// loadError returns the message of the loader. It loads the library again, because go-nvml does
// not return the message.
func loadError() string {
	lib := dl.New(libraryName, dl.RTLD_LAZY|dl.RTLD_GLOBAL)
	if err := lib.Open(); err != nil {
		return err.Error()
	}
	_ = lib.Close()
	return ""
}

// versionSuffixes are the suffixes of functions with several versions, the newest first.
var versionSuffixes = map[string][]string{
	"nvmlDeviceGetCount":                    {"_v2", ""},
	"nvmlDeviceGetHandleByIndex":            {"_v2", ""},
	"nvmlDeviceGetPciInfo":                  {"_v3", "_v2", ""},
	"nvmlDeviceGetComputeRunningProcesses":  {"_v3", "_v2", ""},
	"nvmlDeviceGetGraphicsRunningProcesses": {"_v3", "_v2", ""},
	"nvmlEventSetWait":                      {"_v2", ""},
}

// findSymbol returns the name of the newest version of a function, which is the one that go-nvml
// calls, and whether the library has any.
func findSymbol(lib nvml.Interface, function string) (name string, found bool) {
	all := versionSuffixes[function]
	if all == nil {
		all = []string{""}
	}
	for _, ending := range all {
		if lib.Extensions().LookupSymbol(function+ending) == nil {
			return function + ending, true
		}
	}
	return function + all[0], false
}

// returnNames maps the values of nvmlReturn_t to their names without prefix: those that go-nvml
// knows, and some that it lacks. They are read once, before a library is loaded: after that,
// go-nvml gets the texts from the library, which returns sentences.
var returnNames = sync.OnceValue(func() map[nvml.Return]NVMLReturn {
	names := map[nvml.Return]NVMLReturn{
		nvml.ERROR_NOT_READY:                "NOT_READY",
		nvml.ERROR_GPU_NOT_FOUND:            "GPU_NOT_FOUND",
		nvml.ERROR_INVALID_STATE:            "INVALID_STATE",
		nvml.ERROR_RESET_TYPE_NOT_SUPPORTED: "RESET_TYPE_NOT_SUPPORTED",
		nvml.ERROR_UNKNOWN:                  UnknownError,
	}
	for code := range nvml.ERROR_NOT_READY {
		names[code] = NVMLReturn(strings.TrimPrefix(code.Error(), "ERROR_"))
	}
	return names
})

// returnName returns the name of a result, or CODE_<number> if the result is newer than this
// program.
func returnName(ret nvml.Return) NVMLReturn {
	if name, found := returnNames()[ret]; found {
		return name
	}
	return NVMLReturn(fmt.Sprintf("CODE_%d", int32(ret)))
}

// queryIntField queries a field with an integer value; link is the link to query, or 0 if the field
// has only one value. A successful call does not mean that the field was read: it has its own
// result.
func queryIntField(d nvml.Device, id uint32, link int) (int, nvml.Return) {
	fields := []nvml.FieldValue{{FieldId: id, ScopeId: uint32(link)}}
	ret := d.GetFieldValues(fields)
	field := fields[0]
	if ret = cmp.Or(ret, nvml.Return(field.NvmlReturn)); ret != nvml.SUCCESS {
		return 0, ret
	}
	all := binary.NativeEndian.Uint64(field.Value[:])
	switch low := binary.NativeEndian.Uint32(field.Value[:4]); nvml.ValueType(field.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return int(low), nvml.SUCCESS
	case nvml.VALUE_TYPE_UNSIGNED_LONG, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		return int(all), nvml.SUCCESS
	case nvml.VALUE_TYPE_SIGNED_INT:
		return int(int32(low)), nvml.SUCCESS
	case nvml.VALUE_TYPE_UNSIGNED_SHORT:
		return int(binary.NativeEndian.Uint16(field.Value[:2])), nvml.SUCCESS
	default:
		return 0, nvml.ERROR_UNKNOWN
	}
}

// formatBusAddress converts a PCI address of NVML to the format of sysfs: 00000000:3B:00.0 becomes
// 0000:3b:00.0. A domain that needs more than four digits keeps them.
func formatBusAddress(info nvml.PciInfo) string {
	text := make([]byte, len(info.BusId))
	for i, c := range info.BusId {
		text[i] = byte(c)
	}
	bus := strings.ToLower(unix.ByteSliceToString(text))
	for len(bus) > len("0000:3b:00.0") && bus[0] == '0' {
		bus = bus[1:]
	}
	return bus
}
