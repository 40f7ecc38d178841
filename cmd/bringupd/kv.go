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

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/meeting/client"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/setting"
)

// meetingCall is one execution of bringupd kv.
type meetingCall struct {
	*invocation
	timeout time.Duration
	owner   string
	collect bool
}

// usualKVTime is the default timeout of get and fence.
const usualKVTime = 5 * time.Minute

func (inv *invocation) kvCommand() *cli.Command {
	k := &meetingCall{invocation: inv, timeout: usualKVTime}
	own := setting.List{
		setting.Wait("timeout", &k.timeout, "how long get and fence wait; 0: without an end").Not(setting.ByVariable),
		setting.Text("owner", "RANK", &k.owner, "of get: the rank that has put it (default: whoever has)").Not(setting.ByVariable),
		setting.Yes("collect", &k.collect, "of fence: bring all its data to every node, where each needs most of it").Not(setting.ByVariable),
	}
	return inv.command(cli.Command{
		Name: "kv", Usage: "put and get values, and wait for each other, as a rank of a world",
		UsageText: "bringupd kv put KEY [VALUE]\nbringupd kv get KEY [--owner=RANK] [--timeout=TIME]\nbringupd kv fence [NAME] [--timeout=TIME]\n" +
			"bringupd kv abort CODE [MESSAGE]\nbringupd kv watch",
		Description: "It is for the programs that bringupd has started in ranks. What is put is there at once for who gets it; get waits for it, and a fence for all ranks. " +
			"Abort ends the job with that code. Exits with 0; 124 if the timeout is over, and says who is missing; 76 if who is waited for, or the run, has ended; " +
			"65 if the node has no peer link (--lifeline=off); 64 if what is asked for is wrong.",
	}, setting.Under("Waiting", own...), k.do)
}

// verbs are the operations, with the minimum and maximum number of their arguments.
var verbs = map[string]struct {
	least, most int
	do          func(k *meetingCall, ctx context.Context, c *client.Client, args []string) error
}{
	"put":   {1, 2, (*meetingCall).put},
	"get":   {1, 1, (*meetingCall).get},
	"fence": {0, 1, (*meetingCall).fence},
	"abort": {1, 2, (*meetingCall).abort},
	"watch": {0, 0, (*meetingCall).watch},
}

func (k *meetingCall) do(args []string) error {
	if len(args) == 0 {
		return usage("cannot tell what to do: give put, get, fence, abort or watch")
	}
	verb, known := verbs[args[0]]
	if args = args[1:]; !known || len(args) < verb.least || len(args) > verb.most {
		return usage("cannot tell what to do: give put KEY [VALUE], get KEY, fence [NAME], abort CODE [MESSAGE], or watch")
	}
	err := k.heeding(func(ctx context.Context, _ <-chan struct{}) error {
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
	case errors.Is(err, client.ErrLate):
		kind = health.Deadline
	case errors.Is(err, client.ErrGone):
		kind = health.PeerLost
	case errors.Is(err, client.ErrRefused):
		kind = health.Launch
	default:
		return usage("%v", err)
	}
	k.say("%v", err)
	k.code = health.OutcomeOf(kind).Code
	return nil
}

func (k *meetingCall) put(ctx context.Context, c *client.Client, args []string) error {
	value := []byte(strings.Join(args[1:], ""))
	if len(args) == 1 {
		var err error
		if value, err = io.ReadAll(io.LimitReader(k.files.In, client.LargestValue+1)); err != nil {
			return fmt.Errorf("cannot read the value from standard input: %v", err)
		}
	}
	if err := c.Put(ctx, args[0], value); err != nil {
		return err
	}
	return c.Commit(ctx)
}

func (k *meetingCall) get(ctx context.Context, c *client.Client, args []string) error {
	value, _, err := c.Get(ctx, args[0], k.owner, k.timeout)
	if err != nil {
		return err
	}
	if isTerminal(k.files.Out) {
		value = append(value, '\n')
	}
	_, err = k.files.Out.Write(value)
	return err
}

func (k *meetingCall) fence(ctx context.Context, c *client.Client, args []string) error {
	return c.Fence(ctx, strings.Join(args, ""), k.collect, k.timeout)
}

func (k *meetingCall) abort(ctx context.Context, c *client.Client, args []string) error {
	code, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("cannot abort with code %q: give a number from 1 to 255", args[0])
	}
	return c.Abort(ctx, code, strings.Join(args[1:], ""))
}

// watch prints one line per event.
func (k *meetingCall) watch(ctx context.Context, c *client.Client, _ []string) error {
	return c.Watch(ctx, func(e client.Event) error {
		_, err := k.files.Out.Write(prose.Escaped(fmt.Appendf(nil, "%s %s: %s\n", e.Kind, e.Who, e.What)))
		return err
	})
}
