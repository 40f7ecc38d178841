package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/signal"
)

// stopTimeout bounds what stop does on the share.
const stopTimeout = 30 * time.Second

var errStopTimeout = errors.New("the time for it is over")

func (inv *invocation) stopCommand() *cli.Command {
	return &cli.Command{
		Name: "stop", Usage: "end a run in good order, from wherever its log directory is seen",
		UsageText: "bringupd stop RUN-DIRECTORY\nbringupd stop LOG-DIRECTORY   (its newest run)",
		Action: func(c *cli.Context) error {
			switch {
			case inv.dashed:
				return usage("cannot stop by a driver: give the run directory, without --")
			case c.NArg() != 1:
				return usage("cannot stop %d runs: give one run directory, or a log directory whose newest run is meant", c.NArg())
			}
			ctx, cancel := context.WithTimeoutCause(context.Background(), stopTimeout, errStopTimeout)
			defer cancel()
			return inv.stop(ctx, c.Args().First())
		},
	}
}

func (inv *invocation) stop(ctx context.Context, path string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	dir, job, err := signal.OpenExisting(ctx, path, host)
	if err != nil {
		return wrongRun(err)
	}
	ended, err := dir.Ended(ctx)
	if err != nil {
		return wrongRun(err)
	}
	if ended {
		_, err = fmt.Fprintf(inv.files.Err, "bringupd: run %s has ended already (%s)\n", dir.Name(), dir.Path())
		return err
	}
	if err := dir.RequestStop(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(inv.files.Err, "bringupd: asked run %s of %d nodes to end (%s)\n", dir.Name(), job.Size, dir.Path())
	return err
}

// wrongRun blames the argument where the file system is not to blame.
func wrongRun(err error) error {
	var directory *signal.DirError
	var stall *signal.StallError
	if errors.As(err, &directory) || errors.As(err, &stall) {
		return err
	}
	return usage("%v", err)
}
