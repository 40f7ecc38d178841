package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/gpu"
)

func TestGPUProbe(t *testing.T) {
	got := call(t, nil, "gpu-probe", "--nvml=/nonexistent/libnvidia-ml.so.1")
	var facts gpu.Facts
	if err := json.Unmarshal([]byte(got.out), &facts); err != nil || got.code != 0 || got.err != "" {
		t.Fatalf("it says %+v: %v", got, err)
	}
	if facts.Init != gpu.LibraryNotFound && facts.Init != gpu.NoCgo || facts.Library != "/nonexistent/libnvidia-ml.so.1" {
		t.Errorf("the facts are %+v", facts)
	}
}

func TestGPUProbeIsHidden(t *testing.T) {
	if got := call(t, nil, "--help"); strings.Contains(got.out, gpu.ProbeCommand) {
		t.Error("it is in the help")
	}
	if got := call(t, nil, "help", "gpu-prob"); strings.Contains(got.err, gpu.ProbeCommand) {
		t.Errorf("it is suggested: %s", got.err)
	}
	if got := call(t, nil, "gpu-probe", "--", "driver"); got.code != 64 {
		t.Errorf("with a driver: %+v", got)
	}
}
