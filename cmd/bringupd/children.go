package main

import (
	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix/child"
)

// gpuChildCommand returns the subcommand that a daemon runs to query the GPU driver and to receive
// its events: see gpu.Child.
func (inv *invocation) gpuChildCommand() *cli.Command {
	return inv.childCommand(gpu.ChildCommand, "nvml", "answer NVML queries from standard input as JSON lines",
		func(library string, std config.Streams) int { return gpu.ChildMain(library, std.In, std.Out) })
}

// pmixChildCommand returns the subcommand that a daemon runs to serve PMIx: see pmix.Server.
func (inv *invocation) pmixChildCommand() *cli.Command {
	return inv.childCommand(pmix.ChildCommand, "pmix", "serve PMIx as configured by standard input",
		func(library string, std config.Streams) int {
			return child.ServePMIx(library, std.In, std.Out, std.Err)
		})
}

// childCommand returns a hidden subcommand that serves a daemon with a library, which flag names.
func (inv *invocation) childCommand(
	name, flag, usage string, serve func(library string, std config.Streams) int,
) *cli.Command {
	var library string
	all := config.List{config.NewText(flag, "FILE", &library, "path of the library")}
	return inv.completeCommand(cli.Command{
		Name: name, Usage: usage, UsageText: "bringupd " + name + " --" + flag + "=FILE", Hidden: true,
	}, all, func([]string) error {
		inv.exitCode = serve(library, inv.streams)
		return nil
	})
}
