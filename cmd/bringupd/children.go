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
	return inv.completeCommand(cli.Command{
		Name: gpu.ChildCommand, Usage: "answer NVML queries from standard input as JSON lines",
		UsageText: "bringupd " + gpu.ChildCommand, Hidden: true,
	}, nil, func([]string) error {
		inv.exitCode = gpu.ChildMain(inv.streams.In, inv.streams.Out)
		return nil
	})
}

// pmixChildCommand returns the subcommand that a daemon runs to serve PMIx: see pmix.Server.
func (inv *invocation) pmixChildCommand() *cli.Command {
	var library string
	all := config.List{config.NewText("pmix", "FILE", &library, "path of the library")}
	return inv.completeCommand(cli.Command{
		Name: pmix.ChildCommand, Usage: "serve PMIx as configured by standard input",
		UsageText: "bringupd " + pmix.ChildCommand + " --pmix=FILE", Hidden: true,
	}, all, func([]string) error {
		inv.exitCode = child.ServePMIx(library, inv.streams.In, inv.streams.Out, inv.streams.Err)
		return nil
	})
}
