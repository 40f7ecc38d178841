//go:build cgo

// Package child is the process that serves PMIx: it loads a libpmix, which the daemon can't, whose life must not hang from another's code.
package child

/*
#cgo CFLAGS: -std=gnu11 -Wall
#cgo LDFLAGS: -ldl -lpthread -rdynamic
#include "child.h"
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"github.com/bringupd/bringupd/pkg/pmi/pmix"
	"github.com/bringupd/bringupd/pkg/process"
)

// Serve serves by the libpmix of a file until in ends, and returns the process's exit code. What it says goes to errs.
func Serve(library string, in, out *os.File, errs io.Writer) int {
	runtime.LockOSThread()
	if pmix.IsChild() {
		process.CloseInherited(2) // else somebody has started it by hand
	}
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	if in == nil || out == nil {
		fmt.Fprintln(errs, "cannot serve PMIx without standard input and output")
		return C.CHILD_UNFIT
	}
	return int(C.serve_pmix(path, C.int(in.Fd()), C.int(out.Fd())))
}
