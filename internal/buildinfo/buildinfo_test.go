package buildinfo

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestNewReport(t *testing.T) {
	info := debug.BuildInfo{
		GoVersion: "go1.26.0", Main: debug.Module{Path: "example.org/x"},
		Deps: []*debug.Module{{Path: "github.com/NVIDIA/go-nvml", Version: "v0.13"}},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-01T00:00:00Z"}, {Key: "vcs.modified", Value: "true"}, {Key: "CGO_ENABLED", Value: "1"},
		},
	}
	want := Report{
		Module: "example.org/x", Version: "v1.2.3", Commit: "abc", Time: "2026-01-01T00:00:00Z", Dirty: true,
		Go: "go1.26.0", OS: runtime.GOOS, Arch: runtime.GOARCH, Cgo: true, NVML: "v0.13",
	}
	if got := NewReport(&info, Stamp{Version: "v1.2.3"}); got != want {
		t.Errorf("got %+v", got)
	}
	info.Settings[3].Value = "0"
	if got := NewReport(&info, Stamp{Version: "v1.2.3"}); got.Cgo || got.NVML != "" {
		t.Errorf("a static build can ask for GPUs: %+v", got)
	}
}

func TestProgramVersion(t *testing.T) {
	checkout := debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}}
	for _, tc := range []struct {
		stamp Stamp
		info  *debug.BuildInfo
		want  string
	}{
		{Stamp{Version: "v1.2.3"}, &checkout, "v1.2.3"}, {Stamp{}, &checkout, "devel-0123456789ab-dirty"}, {Stamp{}, nil, "unknown"},
		{Stamp{}, &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "(devel)"},
	} {
		if got := tc.stamp.ProgramVersion(tc.info); got != tc.want {
			t.Errorf("%+v is %s, want %s", tc, got, tc.want)
		}
	}
}
