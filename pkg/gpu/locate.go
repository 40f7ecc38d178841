package gpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ProbeTopology returns the topology of this node's GPUs. It starts a child only if there is a sign
// of an NVIDIA GPU. If the result has no GPUs, why explains why there are none, or why they are
// unknown. ProbeTopology returns an error only if the context has ended: its cause.
func (c Child) ProbeTopology(ctx context.Context) (t Topology, why string, err error) {
	if c.Library == "" && len(FindNVIDIASigns("/")) == 0 {
		if t = BuildTopology("/", NonNVIDIAFacts("/")); t.GPUs == nil {
			why = "no sign of an NVIDIA GPU or driver, or of an AMD or Intel GPU"
		}
		return t, why, nil
	}
	facts, err := c.Probe(ctx)
	switch {
	case err != nil:
		return t, "", err
	case facts.Init != Success:
		return t, strings.TrimSuffix(fmt.Sprintf("cannot query NVML for GPUs: %s: %s", facts.Init,
			facts.Detail), ": "), nil
	case len(facts.GPUs) == 0:
		why = "NVML shows no GPU"
	}
	return BuildTopology("/", facts), why, nil
}

// nvmlFileName is the name by which the loader finds NVML.
const nvmlFileName = "libnvidia-ml.so.1"

// FindLibrary returns the path of NVML in LD_LIBRARY_PATH, or an empty string. It is queried even if
// the machine shows no sign of an NVIDIA GPU.
func FindLibrary(getenv func(name string) string) string {
	for _, dir := range filepath.SplitList(getenv("LD_LIBRARY_PATH")) {
		path := filepath.Join(dir, nvmlFileName)
		if info, err := os.Stat(path); dir != "" && err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
