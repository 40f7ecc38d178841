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
	var which whichRun
	own := under(otherFlags, settings{which.setting()})
	return &cli.Command{
		Name: "stop", Usage: "end a run in good order, from wherever its log directory is seen",
		UsageText:   "bringupd stop RUN\nbringupd stop LOG-DIRECTORY   (its newest run)\nbringupd stop   (within a run: that one)",
		Description: aRun + " It guesses none: outside of a run, name one, or a log directory.",
		Flags:       own.flags(func(*setting) bool { return true }),
		Action: func(c *cli.Context) error {
			if inv.dashed {
				return usage("cannot stop by a driver: give the run directory, without --")
			}
			if _, err := own.gather(os.LookupEnv); err != nil {
				return err
			}
			if c.NArg() == 0 && which.given.source != byFlag && os.Getenv("BRINGUPD_RUN_DIR") == "" {
				return usage("cannot tell which run to stop: give its directory, or a log directory whose newest run is meant")
			}
			ctx, cancel := context.WithTimeoutCause(context.Background(), stopTimeout, errStopTimeout)
			defer cancel()
			path, err := which.find(ctx, c.Args().Slice())
			if err != nil {
				return wrongRun(err)
			}
			return inv.stop(ctx, path)
		},
	}
}

func (inv *invocation) stop(ctx context.Context, path string) error {
	dir, job, ended, err := openRun(ctx, path)
	if err != nil {
		return err
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
