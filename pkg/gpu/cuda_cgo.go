//go:build linux && cgo

package gpu

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

// The calls, by the types of their parameters. A CUresult is an int (cuda.h).
static int call_flags(void *f, unsigned flags) { return ((int (*)(unsigned))f)(flags); }
static int call_get(void *f, int *value) { return ((int (*)(int *))f)(value); }
static int call_name(void *f, int code, const char **name) { return ((int (*)(int, const char **))f)(code, name); }

static const char *file_of(void *symbol) {
	Dl_info info;
	return dladdr(symbol, &info) ? info.dli_fname : NULL;
}
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/bringupd/bringupd/internal/textutil"
)

// cudaLibrary is a loaded libcuda. Its functions are called through C code of our own: purego would
// link the program that is built without cgo with the dynamic loader, too, and the loader of go-nvml
// does not return the address of a function.
type cudaLibrary struct{ handle unsafe.Pointer }

// queryCUDA loads the library that the loader finds and sets the fields of f that it provides. All symbols are resolved
// now (RTLD_NOW): if one is missing, the loader returns a message, whereas resolving it later would
// end the process during a call.
func queryCUDA(f *CUDAFacts) {
	name := C.CString("libcuda.so.1")
	defer C.free(unsafe.Pointer(name))
	runtime.LockOSThread() // dlerror returns the last message of the calling thread
	defer runtime.UnlockOSThread()
	l := cudaLibrary{C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)}
	if l.handle == nil {
		f.Init, f.Detail = LibraryNotFound, textutil.SingleLine(C.GoString(C.dlerror()), maxTextLength)
		return
	}
	if symbol := l.lookUp("cuInit"); symbol != nil {
		file := C.GoString(C.file_of(symbol))
		if real, err := filepath.EvalSymlinks(file); err == nil {
			file = real // its name has the driver's version
		}
		f.Loaded = textutil.SingleLine(file, maxTextLength)
	}
	f.Init, f.Code = l.call("cuInit", func(fn unsafe.Pointer) C.int { return C.call_flags(fn, 0) })
	if f.Init != Success {
		return
	}
	var count C.int
	why, _ := l.call("cuDeviceGetCount", func(fn unsafe.Pointer) C.int { return C.call_get(fn, &count) })
	if f.Count = newReading(int(count)); why != Success {
		f.Count = missingReading[int](why)
	}
}

func (l cudaLibrary) lookUp(function string) unsafe.Pointer {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return C.dlsym(l.handle, name)
}

// call calls a function of the library and returns the name of its result, and the result. A parent
// that kills this process finds the name of a slow call on standard error.
func (l cudaLibrary) call(function string, call func(f unsafe.Pointer) C.int) (NVMLReturn, int) {
	f := l.lookUp(function)
	if f == nil {
		return FunctionNotFound, 0
	}
	late := time.AfterFunc(slowCallThreshold, func() { fmt.Fprintf(os.Stderr, "waiting for %s\n", function) })
	defer late.Stop()
	code := call(f)
	if code == 0 {
		return Success, 0
	}
	var name *C.char
	if namer := l.lookUp("cuGetErrorName"); namer == nil || C.call_name(namer, code, &name) != 0 || name == nil {
		return NVMLReturn(fmt.Sprintf("CODE_%d", code)), int(code)
	}
	text := textutil.SingleLine(C.GoString(name), maxTextLength)
	return NVMLReturn(strings.TrimPrefix(text, "CUDA_ERROR_")), int(code)
}
