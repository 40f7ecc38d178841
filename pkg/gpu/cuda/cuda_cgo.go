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

	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	// libraryName is what the loader looks for where no file is named.
	libraryName = "libcuda.so.1"
	// waitTold is how long a call may take before it is named on standard error: who kills a process that does not
	// answer finds it in its last words.
	waitTold = time.Second
	// mostDevices is how many are looked at; no node has as many, but a broken library may say so.
	mostDevices = 64
)

// library is a libcuda that is loaded. It stays so until the process ends: its threads may run on.
//
// It is called by C of our own. purego, which needs none, would link the program without cgo to the loader too, and
// that one is to run everywhere; go-nvml's loader does not tell where a function is.
type library struct{ handle unsafe.Pointer }

// load loads the library. What can't be resolved is told of here, in the loader's words, and does not end the process
// within a call.
func load(path string) (library, error) {
	name := C.CString(cmp.Or(path, libraryName))
	defer C.free(unsafe.Pointer(name))
	runtime.LockOSThread() // the loader keeps its words for each thread
	defer runtime.UnlockOSThread()
	handle := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if handle == nil {
		return library{}, errors.New(prose.Line(C.GoString(C.dlerror()), shown))
	}
	return library{handle}, nil
}

// lookup returns where a function is; nil where the library lacks it.
func (l library) lookup(function string) unsafe.Pointer {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return C.dlsym(l.handle, name)
}

// file is the one that was loaded, without links: the name of the real one has the driver's version.
func (l library) file() string {
	symbol := l.lookup("cuInit")
	if symbol == nil {
		return ""
	}
	name := C.GoString(C.file_of(symbol))
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	return prose.Line(name, shown)
}

// call calls a function, if the library has it, and names what it returns.
func (l library) call(function string, call func(f unsafe.Pointer) C.int) Answer {
	f := l.lookup(function)
	if f == nil {
		return ours(FunctionNotFound)
	}
	late := time.AfterFunc(waitTold, func() { fmt.Fprintf(os.Stderr, "waiting for %s\n", function) })
	defer late.Stop()
	return l.named(call(f))
}

// named returns a code with its name: the library's own, or ours where that is too old to have any.
func (l library) named(code C.int) Answer {
	answer := ours(Code(code))
	f := l.lookup("cuGetErrorName")
	var name *C.char
	if code == 0 || f == nil || C.call_name(f, code, &name) != 0 || name == nil {
		return answer
	}
	answer.Name = strings.TrimPrefix(prose.Line(C.GoString(name), shown), "CUDA_ERROR_")
	return answer
}

// ask fills in what the library says.
func ask(f *Facts) {
	l, err := load(f.Library)
	if err != nil {
		f.Init, f.Detail = ours(LibraryNotFound), err.Error()
		return
	}
	f.Loaded = l.file()
	f.Init = l.call("cuInit", func(fn unsafe.Pointer) C.int { return C.call_flags(fn, 0) })
	f.Driver = l.number("cuDriverGetVersion")
	if f.Init.Code != 0 {
		return
	}
	f.Count = l.number("cuDeviceGetCount")
	count, _ := f.Count.Get()
	var handles []C.int
	for ordinal := range min(count, mostDevices) {
		device, handle := l.device(ordinal)
		f.Devices, handles = append(f.Devices, device), append(handles, handle)
	}
	f.Apart = l.apart(handles)
}

// number asks for one that is the library's, or the node's.
func (l library) number(function string) Reading[int] {
	var value C.int
	answer := l.call(function, func(f unsafe.Pointer) C.int { return C.call_get(f, &value) })
	return reading(answer, int(value))
}

// noHandle is that of a device that can't be asked.
const noHandle = -1

// device asks for one, and returns what it is called by in other calls.
func (l library) device(ordinal int) (Device, C.int) {
	d := Device{Ordinal: ordinal}
	handle := C.int(noHandle)
	if had := l.call("cuDeviceGet", func(f unsafe.Pointer) C.int { return C.call_get_of(f, &handle, C.int(ordinal)) }); had.Code != 0 {
		d.UUID.Why, d.Name.Why = had, had
		return d, noHandle
	}
	var name [256]byte // NVIDIA's own samples have as many
	answer := l.call("cuDeviceGetName", func(f unsafe.Pointer) C.int {
		return C.call_text(f, (*C.char)(unsafe.Pointer(&name[0])), C.int(len(name)), handle)
	})
	d.Name = reading(answer, prose.Line(unix.ByteSliceToString(name[:]), shown))
	d.UUID = l.uuid(handle)
	return d, handle
}

// uuid asks for that of an instance under MIG, as drivers do since CUDA 11.4, and else for the GPU's.
func (l library) uuid(handle C.int) Reading[string] {
	function := "cuDeviceGetUuid_v2"
	if l.lookup(function) == nil {
		function = "cuDeviceGetUuid"
	}
	var id [16]byte
	answer := l.call(function, func(f unsafe.Pointer) C.int { return C.call_bytes(f, unsafe.Pointer(&id[0]), handle) })
	return reading(answer, fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:]))
}

// apart asks of each device whether it reaches each of the others, and returns those that don't.
func (l library) apart(handles []C.int) (pairs []Pair) {
	for a, from := range handles {
		for b, to := range handles {
			if a == b || from == noHandle || to == noHandle {
				continue
			}
			var can C.int
			answer := l.call("cuDeviceCanAccessPeer", func(f unsafe.Pointer) C.int { return C.call_get_of_two(f, &can, from, to) })
			if answer.Code != 0 || can == 0 {
				pairs = append(pairs, Pair{A: a, B: b, Access: reading(answer, can != 0)})
			}
		}
	}
	return pairs
}
