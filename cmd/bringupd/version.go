package main

import (
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/buildinfo"
	"github.com/bringupd/bringupd/pkg/config"
)

// stamped is set by release builds, with -ldflags "-X main.stamped=v1.2.3", and so is commit.
var stamped, commit string

// programVersion returns the stamped version of a release, or the commit from which it was built.
func programVersion() string {
	info, _ := debug.ReadBuildInfo()
	return buildinfo.Stamp{Version: stamped, Commit: commit}.ProgramVersion(info)
}

func (inv *invocation) versionCommand() *cli.Command {
	asJSON := false
	own := config.AssignCategory(outputHeading, config.NewSwitch("json", &asJSON,
		"print JSON, with build information").WithoutVariable())
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
		return encoder.Encode(buildinfo.NewReport(info, buildinfo.Stamp{Version: stamped, Commit: commit}))
	})
}
