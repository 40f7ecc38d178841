package main

import (
	"fmt"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// stamped is set by release builds, with -ldflags "-X main.stamped=v1.2.3".
var stamped string

// programVersion returns the stamped version of a release, or otherwise the commit from which it was
// built.
func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	switch {
	case stamped != "":
		return stamped
	case !ok:
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

func (inv *invocation) versionCommand() *cli.Command {
	return inv.completeCommand(cli.Command{
		Name: "version", Usage: "print the version", UsageText: "bringupd version",
	}, removedSettings("version"), func([]string) error {
		_, err := fmt.Fprintln(inv.streams.Out, "bringupd", programVersion())
		return err
	})
}
