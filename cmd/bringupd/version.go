package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config/setting"
)

// stamped is set by release builds, with -ldflags "-X main.stamped=v1.2.3", and so is commit.
var stamped, commit string

// programVersion returns the stamped version of a release, or the commit from which it was built.
func programVersion() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
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

// buildReport describes how this program was built, as "bringupd version --json" prints it.
type buildReport struct {
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

// newBuildReport reads the build information that the linker has recorded.
func newBuildReport(info *debug.BuildInfo) buildReport {
	b := buildReport{
		Module: info.Main.Path, Version: programVersion(), Commit: commit, Dirty: strings.HasSuffix(stamped, "-dirty"),
		Go: info.GoVersion, OS: runtime.GOOS, Arch: runtime.GOARCH,
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

func (inv *invocation) versionCommand() *cli.Command {
	asJSON := false
	own := setting.AssignCategory(outputHeading, setting.NewSwitch("json", &asJSON, "print JSON, with build information").ExcludeSources(setting.SourceVariable))
	return inv.completeCommand(cli.Command{Name: "version", Usage: "print the version", UsageText: "bringupd version [--json]"}, own, func([]string) error {
		if !asJSON {
			_, err := fmt.Fprintln(inv.streams.Out, "bringupd", programVersion())
			return err
		}
		info, ok := debug.ReadBuildInfo()
		if !ok {
			return fmt.Errorf("cannot read the build information: the linker has not stored any")
		}
		encoder := json.NewEncoder(inv.streams.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(newBuildReport(info))
	})
}
