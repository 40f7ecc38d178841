//go:build cgo

// Package child is the process that serves PMIx. It loads libpmix, which the daemon must not do: a
// defect in foreign code could end the daemon.
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

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
)

// ServePMIx runs a PMIx server with the given libpmix until in reaches its end, and returns the
// exit code of the process. It writes error messages to errs.
func ServePMIx(library string, in, out *os.File, errs io.Writer) int {
	runtime.LockOSThread()
	if pmix.IsChild() {
		process.CloseInheritedFiles(2) // not if the process was started by hand
	}
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	if in == nil || out == nil {
		fmt.Fprintln(errs, "cannot serve PMIx without standard input and output")
		return C.CHILD_UNFIT
	}
	return int(C.serve_pmix(path, C.int(in.Fd()), C.int(out.Fd())))
}
