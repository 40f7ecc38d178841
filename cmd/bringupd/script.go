package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/deploy"
	"github.com/bringupd/bringupd/pkg/config"
)

func (inv *invocation) scriptCommand() *cli.Command {
	scripts := deploy.Scripts()
	var names []string
	for _, script := range scripts {
		names = append(names, script.Name)
	}
	return &cli.Command{
		Name: "script", Usage: "print a job script to adapt, for Slurm and others",
		UsageText: "bringupd script   (lists the scripts)\nbringupd script ray > ray.sbatch",
		Description: "Adapt the lines below \"Your site\" in the script (account, partition, GPUs, " +
			"modules, virtual environment), and submit it as its first comment shows. " +
			"The scripts are: " + strings.Join(names, ", ") + ".",
		BashComplete: completeWords(names...),
		Action: func(c *cli.Context) (err error) {
			name := c.Args().First()
			at := slices.Index(names, name)
			switch {
			case inv.hasDashes || c.NArg() > 1:
				return usageErrorf("cannot print a script: give one of %s", strings.Join(names, ", "))
			case c.NArg() == 0:
				_, err = fmt.Fprint(inv.streams.Out, listScripts(scripts))
			case at < 0:
				return usageErrorf(
					"cannot print the script %q: give one of %s%s",
					name, strings.Join(names, ", "), config.SuggestNearest("", name, names))
			default:
				_, err = inv.streams.Out.Write(scripts[at].Text())
			}
			return err
		},
	}
}

// listScripts returns a line for each script.
func listScripts(scripts []deploy.Script) string {
	var b strings.Builder
	for _, script := range scripts {
		fmt.Fprintf(&b, "  %-16s %s\n", script.Name, script.Summary)
	}
	return b.String() + "\nFor example: bringupd script ray > ray.sbatch\n"
}
