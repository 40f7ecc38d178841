package main

import (
	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/pmi/pmix"
	"github.com/bringupd/bringupd/pkg/pmi/pmix/child"
)

// pmixChildCommand is what a daemon runs to serve PMIx: see pmix.Server.
func (inv *invocation) pmixChildCommand() *cli.Command {
	var library string
	all := settings{text("pmix", "FILE", &library, "the libpmix to serve by")}
	return inv.command(cli.Command{
		Name: pmix.ChildCommand, Usage: "serve PMIx by a libpmix, as standard input says",
		UsageText: "bringupd pmix-child --pmix=FILE",
		Hidden:    true,
	}, all, func([]string) error {
		inv.code = child.Serve(library, inv.files.In, inv.files.Out, inv.files.Err)
		return nil
	})
}
