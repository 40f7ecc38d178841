//go:build !linux || !cgo

package gpu

import (
	"context"
	"fmt"
)

// noLibrary implements deviceLibrary in a program without cgo, which cannot query NVML.
type noLibrary struct{}

func openLibrary() deviceLibrary { return noLibrary{} }

func (noLibrary) inspectGPUs(func(message)) Facts { return Facts{Version: FactsVersion, Init: NoCgo} }

func (noLibrary) inspectCUDA() CUDAFacts { return inspectCUDA() }

func (noLibrary) watchEvents(context.Context, request, func(message)) error {
	return fmt.Errorf("%s: this bringupd was built without cgo", NoCgo)
}

// queryCUDA sets f.Init to NO_CGO, because a library cannot be called without cgo.
func queryCUDA(f *CUDAFacts) { f.Init = NoCgo }
