//go:build linux && cgo

package cuda

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

// The calls, by the types of what they take. A CUresult, and a CUdevice, is an int (cuda.h).
static int call_flags(void *f, unsigned flags) { return ((int (*)(unsigned))f)(flags); }
static int call_get(void *f, int *value) { return ((int (*)(int *))f)(value); }
static int call_get_of(void *f, int *value, int of) { return ((int (*)(int *, int))f)(value, of); }
static int call_get_of_two(void *f, int *value, int a, int b) { return ((int (*)(int *, int, int))f)(value, a, b); }
static int call_bytes(void *f, void *bytes, int of) { return ((int (*)(void *, int))f)(bytes, of); }
static int call_text(void *f, char *text, int length, int of) { return ((int (*)(char *, int, int))f)(text, length, of); }
static int call_name(void *f, int code, const char **name) { return ((int (*)(int, const char **))f)(code, name); }

static const char *file_of(void *symbol) {
	Dl_info info;
	return dladdr(symbol, &info) ? info.dli_fname : NULL;
}
*/
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/textutil"
)

const (
	// libraryName is the library that the loader searches if no file is named.
	libraryName = "libcuda.so.1"
	// slowCallThreshold is the time after which a slow call is named on standard error: a parent that
	// kills this process finds the name in its last lines.
	slowCallThreshold = time.Second
	// maxDevices is the maximum number of devices that are inspected; no node has as many, but a
	// broken library may report more.
	maxDevices = 64
)

// library is a loaded libcuda. It stays loaded until the process ends, because its threads may
// continue to run.
//
// The functions are called through our own C code. purego, which needs no C, would link the program
// that is built without cgo with the dynamic loader, too, but that program must run everywhere. The
// loader of go-nvml does not return the address of a function.
type library struct{ handle unsafe.Pointer }

// loadLibrary loads the library at path, or the one that the loader finds if path is empty. All
// symbols are resolved now (RTLD_NOW): if one is missing, load returns the loader's message,
// whereas resolving it later would end the process during a call.
func loadLibrary(path string) (library, error) {
	name := C.CString(cmp.Or(path, libraryName))
	defer C.free(unsafe.Pointer(name))
	runtime.LockOSThread() // dlerror returns the last message of the calling thread
	defer runtime.UnlockOSThread()
	handle := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if handle == nil {
		return library{}, errors.New(textutil.SingleLine(C.GoString(C.dlerror()), maxForeignText))
	}
	return library{handle}, nil
}

// lookUpSymbol returns the address of a function, or nil if the library lacks it.
func (l library) lookUpSymbol(function string) unsafe.Pointer {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return C.dlsym(l.handle, name)
}

// callFunction calls a function of the library and returns its result with its name. It returns
// FunctionNotFound if the library lacks the function.
func (l library) callFunction(function string, call func(f unsafe.Pointer) C.int) Result {
	f := l.lookUpSymbol(function)
	if f == nil {
		return newResult(FunctionNotFound)
	}
	late := time.AfterFunc(slowCallThreshold, func() { fmt.Fprintf(os.Stderr, "waiting for %s\n", function) })
	defer late.Stop()
	code := call(f)
	answer := newResult(ResultCode(code))
	namer := l.lookUpSymbol("cuGetErrorName")
	var name *C.char
	if code == 0 || namer == nil || C.call_name(namer, code, &name) != 0 || name == nil {
		return answer // the library may be too old to have names
	}
	answer.Name = strings.TrimPrefix(textutil.SingleLine(C.GoString(name), maxForeignText), "CUDA_ERROR_")
	return answer
}

// queryDriver loads the library f.Library and sets the fields of f that the library provides.
func queryDriver(f *Facts) {
	l, err := loadLibrary(f.Library)
	if err != nil {
		f.Init, f.Detail = newResult(LibraryNotFound), err.Error()
		return
	}
	// Resolve symbolic links, because the real file name contains the driver's version.
	if symbol := l.lookUpSymbol("cuInit"); symbol != nil {
		name := C.GoString(C.file_of(symbol))
		if real, err := filepath.EvalSymlinks(name); err == nil {
			name = real
		}
		f.Loaded = textutil.SingleLine(name, maxForeignText)
	}
	f.Init = l.callFunction("cuInit", func(fn unsafe.Pointer) C.int { return C.call_flags(fn, 0) })
	f.Driver = l.queryNumber("cuDriverGetVersion")
	// Without cuInit there are no devices.
	if f.Init.Code != 0 {
		return
	}
	f.Count = l.queryNumber("cuDeviceGetCount")
	count, _ := f.Count.Get()
	var handles []C.int
	// Query each device, and then all pairs of them.
	for ordinal := range min(count, maxDevices) {
		device, handle := l.queryDevice(ordinal)
		f.Devices, handles = append(f.Devices, device), append(handles, handle)
	}
	f.InaccessiblePairs = l.inaccessiblePairs(handles)
}

// queryNumber calls a function that returns one number about the library or the node.
func (l library) queryNumber(function string) Reading[int] {
	var value C.int
	answer := l.callFunction(function, func(f unsafe.Pointer) C.int { return C.call_get(f, &value) })
	return newReading(answer, int(value))
}

// noHandle is the handle of a device that could not be opened.
const noHandle = -1

// queryDevice queries one device. It also returns its handle for other calls, or noHandle.
func (l library) queryDevice(ordinal int) (Device, C.int) {
	d := Device{Ordinal: ordinal}
	handle := C.int(noHandle)
	if had := l.callFunction("cuDeviceGet", func(f unsafe.Pointer) C.int { return C.call_get_of(f, &handle, C.int(ordinal)) }); had.Code != 0 {
		d.UUID.Reason, d.Name.Reason = had, had
		return d, noHandle
	}
	var name [256]byte // the size in NVIDIA's own samples
	answer := l.callFunction("cuDeviceGetName", func(f unsafe.Pointer) C.int {
		return C.call_text(f, (*C.char)(unsafe.Pointer(&name[0])), C.int(len(name)), handle)
	})
	d.Name = newReading(answer, textutil.SingleLine(unix.ByteSliceToString(name[:]), maxForeignText))
	// Under MIG the UUID is that of the instance if the driver has cuDeviceGetUuid_v2 (since CUDA
	// 11.4), and otherwise that of the GPU.
	function := "cuDeviceGetUuid_v2"
	if l.lookUpSymbol(function) == nil {
		function = "cuDeviceGetUuid"
	}
	var id [16]byte
	answer = l.callFunction(function, func(f unsafe.Pointer) C.int { return C.call_bytes(f, unsafe.Pointer(&id[0]), handle) })
	d.UUID = newReading(answer, fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]))
	return d, handle
}

// inaccessiblePairs queries for each ordered pair of devices whether the first can access the
// memory of the second. It returns the pairs that cannot, or for which the query failed.
func (l library) inaccessiblePairs(handles []C.int) (pairs []DevicePair) {
	for a, from := range handles {
		for b, to := range handles {
			if a == b || from == noHandle || to == noHandle {
				continue
			}
			var can C.int
			answer := l.callFunction("cuDeviceCanAccessPeer", func(f unsafe.Pointer) C.int { return C.call_get_of_two(f, &can, from, to) })
			if answer.Code != 0 || can == 0 {
				pairs = append(pairs, DevicePair{A: a, B: b, Access: newReading(answer, can != 0)})
			}
		}
	}
	return pairs
}
