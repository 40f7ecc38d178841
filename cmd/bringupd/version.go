package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/version"
)

func (inv *invocation) versionCommand() *cli.Command {
	return inv.completeCommand(cli.Command{
		Name: "version", Usage: "print the version", UsageText: "bringupd version",
	}, removedSettings("version"), func([]string) error {
		_, err := fmt.Fprintln(inv.streams.Out, "bringupd", version.Program())
		return err
	})
}
