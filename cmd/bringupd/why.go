package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/meeting/client"
	"github.com/bringupd/bringupd/pkg/request"
	"github.com/bringupd/bringupd/pkg/setting"
	"github.com/bringupd/bringupd/pkg/why"
)

const (
	// whyTime is how long the command waits for nodes, and whyStacksTime if they read stacks, which
	// takes at most half a minute.
	whyTime       = 12 * time.Second
	whyStacksTime = 45 * time.Second
	// whySample is the time during which a node measures processor use.
	whySample = time.Second
	// whyNode is the subcommand that nodes run.
	whyNode = "why-node"
)

var errWhyLate = errors.New("it has not answered in time")

// asking is one execution of bringupd why.
type asking struct {
	*invocation
	which        whichRun
	nodes        []string
	stacks, json bool
}

func (inv *invocation) whyCommand() *cli.Command {
	a := &asking{invocation: inv}
	own := setting.List{
		a.which.setting(),
		setting.Words("node", "NODE", &a.nodes, "only this one, a rank or a host; may be repeated").Not(setting.ByVariable),
		setting.Yes("stacks", &a.stacks, "where in their programs they are: by py-spy for Python and gdb for all else, where they are installed").Not(setting.ByVariable),
		setting.Yes("json", &a.json, "print it as JSON, for programs").Not(setting.ByVariable),
	}
	return inv.command(cli.Command{
		Name: "why", Usage: "show what the driver, the ranks and the services of a running job are doing, to explain a hang",
		UsageText: "bringupd why [flags] [RUN | LOG-DIRECTORY]",
		Description: aRun + " Those who do the same are shown together, and the fewest first: they are mostly whom all others wait for. " +
			"Exits with 0; 76 if a node does not answer, or the head, which passes the question on, does not.",
	}, setting.Under(resultFlags, own...), a.do)
}

func (a *asking) do(args []string) error {
	return a.heeding(func(ctx context.Context, again <-chan struct{}) error {
		opening, cancel := inTime(ctx)
		defer cancel()
		run, err := a.which.open(opening, args, true)
		if err != nil {
			return err
		}
		return a.ask(ctx, run, again)
	})
}

// ask makes all nodes inspect their processes, and prints the result.
func (a *asking) ask(ctx context.Context, run openRun, again <-chan struct{}) error {
	order := request.Order{Argv: []string{whyNode}, Own: true, Nodes: a.nodes}
	if len(a.nodes) == 0 {
		order.Nodes = []string{request.OnAll}
	}
	limit := whyTime
	if a.stacks {
		order.Argv, limit = append(order.Argv, "--stacks"), whyStacksTime
	}
	told, times := make(map[int]*bytes.Buffer), request.Times{Taken: 10 * time.Second, Over: 2 * time.Second, Stop: 2 * time.Second, Beat: time.Second}
	waiting, cancel := context.WithTimeoutCause(ctx, limit, errWhyLate)
	defer cancel()
	caller := request.New(run.Dir, run.job, order, lifeline.TCP{}, times, io.Discard, io.Discard).PerNode(func(node int) io.Writer {
		told[node] = new(bytes.Buffer)
		return told[node]
	})
	answers, err := caller.Do(waiting, again)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, request.ErrRefused):
		return usage("%v", err)
	case len(answers) == 0:
		a.code = health.OutcomeOf(health.PeerLost).Code
		a.say("cannot ask run %s: %v; the daemon of the head may be stopped, or hang, or be older than this program: see bringupd status", run.Name(), err)
		return nil
	}
	return a.show(pictureOf(run.Name(), answers, told, err))
}

func (a *asking) show(picture why.Picture) error {
	if len(picture.Silent) > 0 {
		a.code = health.OutcomeOf(health.PeerLost).Code
	}
	if a.json {
		return writeJSON(a.files.Out, picture)
	}
	_, err := io.WriteString(a.files.Out, picture.Text())
	return err
}

// pictureOf combines the answers of the nodes, and lists those without an answer.
func pictureOf(run string, answers []request.Answer, told map[int]*bytes.Buffer, missing error) why.Picture {
	var seen []why.Seen
	var silent []why.Silent
	for _, node := range answers {
		switch {
		case !node.Answered:
			silent = append(silent, why.Silent{Node: node.Rank, Host: node.Host, Why: fmt.Sprint(missing)})
		case node.Exit.Code != 0:
			silent = append(silent, why.Silent{Node: node.Rank, Host: node.Host, Why: cmp.Or(node.Exit.Failed, node.Exit.Exit)})
		}
		for line := range bytes.Lines(told[node.Rank].Bytes()) {
			var one why.Seen
			if json.Unmarshal(line, &one) == nil { // a truncated answer is that of a silent node
				one.Node, one.Host = node.Rank, node.Host
				seen = append(seen, one)
			}
		}
	}
	return why.NewPicture(run, len(answers), seen, silent)
}

// whyNodeCommand returns the subcommand that a daemon runs to inspect its node.
func (inv *invocation) whyNodeCommand() *cli.Command {
	var stacks bool
	all := setting.List{setting.Yes("stacks", &stacks, "read stacks, too").Not(setting.ByVariable)}
	return inv.command(cli.Command{
		Name: whyNode, Usage: "print what the children of this node's daemon are doing, as JSON lines",
		UsageText: "bringupd why-node [--stacks]",
		Hidden:    true,
	}, all, func([]string) error {
		return inv.heeding(func(ctx context.Context, _ <-chan struct{}) error { return inv.lookAtNode(ctx, stacks) })
	})
}

// lookAtNode inspects the node of the daemon that has started this process.
func (inv *invocation) lookAtNode(ctx context.Context, stacks bool) error {
	value, told := os.LookupEnv(why.Variable)
	if !told {
		return usage("cannot look at a node: no daemon has started this; bringupd why asks all of them")
	}
	children, err := why.Described(value)
	out := json.NewEncoder(inv.files.Out)
	why.Node{Children: children, Waits: waitsHere, Stacks: stacks, For: whySample}.Look(ctx, func(seen why.Seen) {
		err = cmp.Or(err, out.Encode(seen))
	})
	return err
}

// waitsHere returns the rendezvous operations for which the ranks of this node wait. It returns
// none if there is no rendezvous.
func waitsHere(ctx context.Context) (waits []why.Wait, err error) {
	meeting, err := client.Dial(ctx)
	if errors.Is(err, client.ErrNoMeeting) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer meeting.Close()
	known, err := meeting.Waits(ctx)
	for _, wait := range known {
		waits = append(waits, why.Wait{Child: fmt.Sprintf("rank %d", wait.Rank), Kind: wait.Kind, Name: wait.Name, SinceS: wait.SinceS, Missing: wait.Missing})
	}
	return waits, err
}
