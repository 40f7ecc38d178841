//go:build !linux || !cgo

package gpu

import (
	"context"
	"fmt"

	"github.com/bringupd/bringupd/pkg/gpu/cuda"
)

// noDriver implements driver in a program without cgo, which cannot query NVML. Its value is the
// path of the library.
type noDriver string

func openDriver(path string) driver { return noDriver(path) }

func (d noDriver) look(func(line)) Facts {
	return Facts{Version: FactsVersion, Init: NoCgo, Library: string(d)}
}

func (d noDriver) cuda() cuda.Facts { return cuda.Look(cudaLibrary(string(d)), "/") }

func (noDriver) watch(context.Context, question, func(line)) error {
	return fmt.Errorf("%s: this bringupd was built without cgo", NoCgo)
}
