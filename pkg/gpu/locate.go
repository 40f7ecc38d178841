package gpu

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/bringupd/bringupd/internal/envlist"
)

// ProbeTopology returns the topology of this node's GPUs. It starts a child only if there is a sign
// of an NVIDIA GPU. ProbeTopology returns an error only if the context has ended: its cause.
func (c Child) ProbeTopology(ctx context.Context) (Topology, error) {
	if !HasLibrary(c.environ()) && len(FindNVIDIASigns("/")) == 0 {
		return BuildTopology("/", NonNVIDIAFacts("/")), nil
	}
	facts, err := c.Probe(ctx)
	if err != nil {
		return Topology{}, err
	}
	return BuildTopology("/", facts), nil
}

// libraryName is the file name by which the loader finds NVML.
const libraryName = "libnvidia-ml.so.1"

// HasLibrary reports whether the LD_LIBRARY_PATH of an environment has NVML. It is queried then even if
// the machine shows no sign of an NVIDIA GPU.
func HasLibrary(environ []string) bool {
	path, _ := envlist.Lookup(environ, "LD_LIBRARY_PATH")
	return slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, libraryName))
		return dir != "" && err == nil && info.Mode().IsRegular()
	})
}
