package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

type kvCmd struct {
	*invocation
	timeout   time.Duration
	ownerRank string
}

const defaultKVTimeout = 5 * time.Minute

func (inv *invocation) kvCommand() *cli.Command {
	k := &kvCmd{invocation: inv, timeout: defaultKVTimeout}
	own := config.FlagsOnly(
		config.NewDuration("timeout", &k.timeout,
			"how long get and fence wait; 0: forever"),
		config.NewText("owner", "RANK", &k.ownerRank,
			"get: rank that has put the value (default: any)"),
	)
	return inv.completeCommand(cli.Command{
		Name: "kv", Usage: "exchange values and synchronize, from within a rank",
		UsageText: "bringupd kv put KEY [VALUE]\nbringupd kv get KEY [--owner=RANK] " +
			"[--timeout=TIME]\nbringupd kv fence [NAME] [--timeout=TIME]\n" +
			"bringupd kv abort CODE [MESSAGE]\nbringupd kv progress STEP",
		Description: "For programs that bringupd has started as ranks. A value is available to all ranks " +
			"once put returns; get waits until a value exists, and fence until all ranks have called it. " +
			"abort ends the job with CODE; progress reports the step that the rank has reached. Exits with " +
			"0; 124 after the timeout, with the ranks that are missing; 76 if such a rank or the run has " +
			"ended; " +
			"65 if the node has no peer link (--lifeline=off); 64 if the arguments are wrong.",
	}, append(config.AssignCategory("Flags of the operations", own...), removedSettings("kv")...), k.runKV)
}

// kvOperations are the operations, with the minimum and maximum number of their arguments.
var kvOperations = map[string]struct {
	minArgs, maxArgs int
	do               func(k *kvCmd, ctx context.Context, c *rendezvous.Client, args []string) error
}{
	"put":      {1, 2, (*kvCmd).putValue},
	"get":      {1, 1, (*kvCmd).getValue},
	"fence":    {0, 1, (*kvCmd).awaitFence},
	"abort":    {1, 2, (*kvCmd).abortJob},
	"progress": {1, 1, (*kvCmd).reportStep},
}

func (k *kvCmd) runKV(args []string) error {
	if len(args) == 0 {
		return usageErrorf("cannot run without an operation: give put, get, fence, abort or progress")
	}
	for _, r := range removedFrom(removedOperation) {
		if r.name == args[0] {
			return usageErrorf("cannot run bringupd kv %s: this operation was removed: %s", r.name, r.instead)
		}
	}
	verb, known := kvOperations[args[0]]
	if args = args[1:]; !known || len(args) < verb.minArgs || len(args) > verb.maxArgs {
		return usageErrorf(
			"cannot use these arguments: give put KEY [VALUE], get KEY, fence [NAME], abort CODE [MESSAGE], " +
				"or progress STEP")
	}
	err := k.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
		c, err := rendezvous.Dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		return verb.do(k, ctx, c, args)
	})
	var kind health.Kind
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rendezvous.ErrTimeout):
		kind = health.DeadlinePassed
	case errors.Is(err, rendezvous.ErrUnavailable):
		kind = health.PeerLost
	case errors.Is(err, rendezvous.ErrNoPeerLink):
		kind = health.Launch
	default:
		return usageErrorf("%v", err)
	}
	k.printMessage("%v", err)
	k.exitCode = codeOf(kind)
	return nil
}

func (k *kvCmd) putValue(ctx context.Context, c *rendezvous.Client, args []string) error {
	value := []byte(strings.Join(args[1:], ""))
	if len(args) == 1 {
		var err error
		if value, err = io.ReadAll(io.LimitReader(k.streams.In, rendezvous.MaxValueSize+1)); err != nil {
			return fmt.Errorf("cannot read the value from standard input: %v", err)
		}
	}
	if err := c.PutValue(ctx, args[0], value); err != nil {
		return err
	}
	return c.CommitValues(ctx)
}

func (k *kvCmd) getValue(ctx context.Context, c *rendezvous.Client, args []string) error {
	value, _, err := c.GetValue(ctx, args[0], k.ownerRank, k.timeout)
	if err != nil {
		return err
	}
	if console.IsTerminal(k.streams.Out) {
		value = append(value, '\n')
	}
	_, err = k.streams.Out.Write(value)
	return err
}

func (k *kvCmd) awaitFence(ctx context.Context, c *rendezvous.Client, args []string) error {
	return c.AwaitFence(ctx, strings.Join(args, ""), k.timeout)
}

func (k *kvCmd) abortJob(ctx context.Context, c *rendezvous.Client, args []string) error {
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("cannot abort with code %q: give a number from 1 to 255", args[0])
	}
	return c.AbortJob(ctx, code, strings.Join(args[1:], ""))
}

func (k *kvCmd) reportStep(ctx context.Context, c *rendezvous.Client, args []string) error {
	step, err := progress.ParseStep(args[0])
	if err != nil {
		return fmt.Errorf("cannot report step %q: %v", args[0], err)
	}
	return c.ReportStep(ctx, step)
}
