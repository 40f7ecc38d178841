// Package buildinfo describes how this program was built.
package buildinfo

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// Stamp has the values that a release build sets; they are empty in other builds.
type Stamp struct{ Version, Commit string }

// ProgramVersion returns the version of a release, or otherwise the commit from which the program
// was built. info is nil if the linker has recorded nothing.
func (s Stamp) ProgramVersion(info *debug.BuildInfo) string {
	if s.Version != "" {
		return s.Version
	}
	if info == nil {
		return "unknown"
	}
	settings := make(map[string]string)
	for _, entry := range info.Settings {
		settings[entry.Key] = entry.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return info.Main.Version
	}
	text := "devel-" + revision[:min(12, len(revision))]
	if settings["vcs.modified"] == "true" {
		text += "-dirty"
	}
	return text
}

// Report describes how this program was built, as "bringupd version --json" prints it.
type Report struct {
	Module  string `json:"module"`
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"` // empty if it was built without a checkout
	Time    string `json:"time,omitempty"`   // of the commit
	Dirty   bool   `json:"dirty"`            // the checkout had uncommitted changes
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Cgo     bool   `json:"cgo"` // false: it is static, and cannot call libraries
	// NVML is the version of go-nvml. It is empty if this build cannot use NVML.
	NVML string `json:"nvml"`
}

// NewReport returns the report of the build information that the linker has recorded, and of the
// values that a release build has set.
func NewReport(info *debug.BuildInfo, stamp Stamp) Report {
	b := Report{
		Module: info.Main.Path, Version: stamp.ProgramVersion(info), Commit: stamp.Commit,
		Dirty: strings.HasSuffix(stamp.Version, "-dirty"),
		Go:    info.GoVersion, OS: runtime.GOOS, Arch: runtime.GOARCH,
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Dirty = s.Value == "true"
		case "CGO_ENABLED":
			b.Cgo = s.Value == "1"
		}
	}
	for _, dep := range info.Deps {
		if dep.Path == "github.com/NVIDIA/go-nvml" && b.Cgo {
			b.NVML = dep.Version
		}
	}
	return b
}
