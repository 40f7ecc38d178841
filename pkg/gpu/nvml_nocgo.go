//go:build !linux || !cgo

package gpu

import (
	"context"
	"fmt"

	"github.com/bringupd/bringupd/pkg/gpu/cuda"
)

// noLibrary implements driver in a program without cgo, which cannot query NVML. Its value is the
// path of the library.
type noLibrary string

func openLibrary(path string) deviceLibrary { return noLibrary(path) }

func (d noLibrary) inspectGPUs(func(message)) Facts {
	return Facts{Version: FactsVersion, Init: NoCgo, Library: string(d)}
}

func (d noLibrary) inspectCUDA() cuda.Facts {
	return cuda.InspectDriver(cudaLibraryPath(string(d)), "/")
}

func (noLibrary) watchEvents(context.Context, request, func(message)) error {
	return fmt.Errorf("%s: this bringupd was built without cgo", NoCgo)
}
