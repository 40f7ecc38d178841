package main

import (
	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
)

// usageErrorf returns an error of the command line or of the configuration.
func usageErrorf(format string, args ...any) error { return config.UsageErrorf(format, args...) }

// rejectPositional returns an error if there are arguments before "--" that are not flags.
func rejectPositional(c *cli.Context) error {
	first := c.Args().First()
	switch {
	case first == "":
		return nil
	case c.App.Command(first) != nil:
		return usageErrorf(
			"cannot use %q here: the subcommand comes first, for example: bringupd %s [flags]", first, first)
	}
	return usageErrorf(
		"cannot use %q: give the driver and its arguments after --, for example: bringupd [flags] -- %s%s",
		first, first, config.SuggestNearest("subcommand ", first, commandNames(c.App)))
}
