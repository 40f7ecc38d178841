//go:build !linux || !cgo

package gpu

import (
	"context"
	"fmt"
)

// noLibrary implements deviceLibrary in a program without cgo, which cannot query NVML. Its value is
// the path of the library.
type noLibrary string

func openLibrary(path string) deviceLibrary { return noLibrary(path) }

func (d noLibrary) inspectGPUs(func(message)) Facts {
	return Facts{Version: FactsVersion, Init: NoCgo, Library: string(d)}
}

func (d noLibrary) inspectCUDA() CUDAFacts { return inspectCUDA(cudaLibraryPath(string(d))) }

func (noLibrary) watchEvents(context.Context, request, func(message)) error {
	return fmt.Errorf("%s: this bringupd was built without cgo", NoCgo)
}

// queryCUDA sets f.Init to NO_CGO, because a library cannot be called without cgo.
func queryCUDA(_ string, f *CUDAFacts) { f.Init = NoCgo }
