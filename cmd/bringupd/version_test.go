package main

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"testing"
)

func TestVersionJSON(t *testing.T) {
	got := call(t, nil, "version", "--json")
	var b buildReport
	if err := json.Unmarshal([]byte(got.out), &b); err != nil || got.code != 0 || b.Version != programVersion() || b.Go != runtime.Version() || b.OS != "linux" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestBuildOf(t *testing.T) {
	info := debug.BuildInfo{
		GoVersion: "go1.26.0", Main: debug.Module{Path: "example.org/x"},
		Deps: []*debug.Module{{Path: "github.com/NVIDIA/go-nvml", Version: "v0.13"}},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-01T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}, {Key: "CGO_ENABLED", Value: "1"},
		},
	}
	want := buildReport{
		Module: "example.org/x", Version: programVersion(), Commit: "abc", Time: "2026-01-01T00:00:00Z", Dirty: true,
		Go: "go1.26.0", OS: runtime.GOOS, Arch: runtime.GOARCH, Cgo: true, NVML: "v0.13",
	}
	if got := newBuildReport(&info); got != want {
		t.Errorf("got %+v", got)
	}
	info.Settings[3].Value = "0"
	if got := newBuildReport(&info); got.Cgo || got.NVML != "" {
		t.Errorf("a static build can ask for GPUs: %+v", got)
	}
}
