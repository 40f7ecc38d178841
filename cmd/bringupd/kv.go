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

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous/client"
)

// kvCmd is one execution of bringupd kv.
type kvCmd struct {
	*invocation
	timeout     time.Duration
	ownerRank   string
	collectData bool
}

// defaultKVTimeout is the default timeout of get and fence.
const defaultKVTimeout = 5 * time.Minute

func (inv *invocation) kvCommand() *cli.Command {
	k := &kvCmd{invocation: inv, timeout: defaultKVTimeout}
	own := setting.List{
		setting.NewDuration("timeout", &k.timeout, "how long get and fence wait; 0: without an end").ExcludeSources(setting.SourceVariable),
		setting.NewText("owner", "RANK", &k.ownerRank, "of get: the rank that has put it (default: whoever has)").ExcludeSources(setting.SourceVariable),
		setting.NewSwitch("collect", &k.collectData, "of fence: bring all its data to every node, where each needs most of it").ExcludeSources(setting.SourceVariable),
	}
	return inv.completeCommand(cli.Command{
		Name: "kv", Usage: "put and get values, and wait for each other, as a rank of a world",
		UsageText: "bringupd kv put KEY [VALUE]\nbringupd kv get KEY [--owner=RANK] [--timeout=TIME]\nbringupd kv fence [NAME] [--timeout=TIME]\n" +
			"bringupd kv abort CODE [MESSAGE]\nbringupd kv watch",
		Description: "It is for the programs that bringupd has started in ranks. What is put is there at once for who gets it; get waits for it, and a fence for all ranks. " +
			"Abort ends the job with that code. Exits with 0; 124 if the timeout is over, and says who is missing; 76 if who is waited for, or the run, has ended; " +
			"65 if the node has no peer link (--lifeline=off); 64 if what is asked for is wrong.",
	}, setting.AssignCategory("Waiting", own...), k.runKV)
}

// kvOperations are the operations, with the minimum and maximum number of their arguments.
var kvOperations = map[string]struct {
	least, most int
	do          func(k *kvCmd, ctx context.Context, c *client.Client, args []string) error
}{
	"put":   {1, 2, (*kvCmd).putValue},
	"get":   {1, 1, (*kvCmd).getValue},
	"fence": {0, 1, (*kvCmd).awaitFence},
	"abort": {1, 2, (*kvCmd).abortJob},
	"watch": {0, 0, (*kvCmd).printEvents},
}

func (k *kvCmd) runKV(args []string) error {
	if len(args) == 0 {
		return usageErrorf("cannot tell what to do: give put, get, fence, abort or watch")
	}
	verb, known := kvOperations[args[0]]
	if args = args[1:]; !known || len(args) < verb.least || len(args) > verb.most {
		return usageErrorf("cannot tell what to do: give put KEY [VALUE], get KEY, fence [NAME], abort CODE [MESSAGE], or watch")
	}
	err := k.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
		c, err := client.Dial(ctx)
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
	case errors.Is(err, client.ErrTimeout):
		kind = health.DeadlinePassed
	case errors.Is(err, client.ErrUnavailable):
		kind = health.PeerLost
	case errors.Is(err, client.ErrNoPeerLink):
		kind = health.Launch
	default:
		return usageErrorf("%v", err)
	}
	k.printMessage("%v", err)
	k.exitCode = health.OutcomeOfKind(kind).Code
	return nil
}

func (k *kvCmd) putValue(ctx context.Context, c *client.Client, args []string) error {
	value := []byte(strings.Join(args[1:], ""))
	if len(args) == 1 {
		var err error
		if value, err = io.ReadAll(io.LimitReader(k.streams.In, client.MaxValueSize+1)); err != nil {
			return fmt.Errorf("cannot read the value from standard input: %v", err)
		}
	}
	if err := c.PutValue(ctx, args[0], value); err != nil {
		return err
	}
	return c.CommitValues(ctx)
}

func (k *kvCmd) getValue(ctx context.Context, c *client.Client, args []string) error {
	value, _, err := c.GetValue(ctx, args[0], k.ownerRank, k.timeout)
	if err != nil {
		return err
	}
	if isTerminal(k.streams.Out) {
		value = append(value, '\n')
	}
	_, err = k.streams.Out.Write(value)
	return err
}

func (k *kvCmd) awaitFence(ctx context.Context, c *client.Client, args []string) error {
	return c.AwaitFence(ctx, strings.Join(args, ""), k.collectData, k.timeout)
}

func (k *kvCmd) abortJob(ctx context.Context, c *client.Client, args []string) error {
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("cannot abort with code %q: give a number from 1 to 255", args[0])
	}
	return c.AbortJob(ctx, code, strings.Join(args[1:], ""))
}

// printEvents prints one line per event.
func (k *kvCmd) printEvents(ctx context.Context, c *client.Client, _ []string) error {
	return c.WatchEvents(ctx, func(e client.Event) error {
		_, err := k.streams.Out.Write(textutil.EscapeControls(fmt.Appendf(nil, "%s %s: %s\n", e.Kind, e.Subject, e.Detail)))
		return err
	})
}
