package main

import (
	"cmp"
	"fmt"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// stamped is set by release builds, with -ldflags "-X main.stamped=v1.2.3".
var stamped string

// programVersion returns the stamped version of a release, or otherwise the one that the Go command
// has derived from the commit.
func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(stamped, info.Main.Version)
	}
	return cmp.Or(stamped, "unknown")
}

func (inv *invocation) versionCommand() *cli.Command {
	return inv.completeCommand(cli.Command{
		Name: "version", Usage: "print the version", UsageText: "bringupd version",
	}, removedSettings("version"), func([]string) error {
		_, err := fmt.Fprintln(inv.streams.Out, "bringupd", programVersion())
		return err
	})
}
