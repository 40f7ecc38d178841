package main

import (
	"context"
	"io"
	"math"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/signal/prune"
)

func (inv *invocation) badNodesCommand() *cli.Command {
	var which runSelector
	query := runs.BlameQuery{MinUsers: 1}
	asJSON, asHosts := false, false
	own := which.settings(outputHeading,
		config.NewValue("since", "AGE", &query.MaxAge, prune.ParseAge, config.ShowGiven,
			"only runs that ended less than this time ago: 7d or 24h"),
		config.NewNumber("min-users", &query.MinUsers, 1, math.MaxInt32, "only nodes that the runs of this many "+
			"users blame"),
		config.NewSwitch("hosts", &asHosts, "print only the names, as one node list for scontrol"),
		config.NewSwitch("json", &asJSON, "print JSON"))
	which.logDirSetting.Usage = "log directory, unless arguments name some" + defaultLogDir
	return inv.completeCommand(cli.Command{
		Name: "bad-nodes", Usage: "list the nodes that the runs of log directories blame",
		UsageText: "bringupd bad-nodes [flags] [LOG-DIRECTORY...]\n" +
			"bringupd bad-nodes --since=24h --min-users=2 /scratch/*/bringupd-logs",
		Description: "The nodes that the most users blame come first, with the numbers of users and runs, the time " +
			"since the last of the runs, and its cause. The command only reads. Root can run it: it follows no links " +
			"and attributes each record to the owner of its file. The records of one user are no proof: a user " +
			"can blame any node. " +
			"Exits with 0, or with 66 if none of the directories could be read.",
	}, own, func(args []string) error {
		dirs := make([]string, max(1, len(args)))
		for i := range dirs {
			var err error
			if dirs[i], err = which.listedDir(args[min(i, len(args)):min(i+1, len(args))]); err != nil {
				return err
			}
		}
		return inv.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
			found, err := runs.ReadBadNodes(ctx, dirs, query)
			if err != nil {
				return err
			}
			for _, problem := range found.Problems {
				inv.printMessage("%s", problem)
			}
			text := found.Text(time.Now())
			switch {
			case asJSON:
				return writeJSON(inv.streams.Out, found)
			case asHosts && text != "":
				text = found.HostList() + "\n"
			case text == "":
				inv.printMessage("no run blames a node (directories: %d)", found.Directories)
			}
			_, err = io.WriteString(inv.streams.Out, text)
			return err
		})
	})
}
