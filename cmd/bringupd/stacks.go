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

	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous/client"
)

const (
	// whyTimeout is how long the command waits for nodes, and whyStacksTimeout if they read stacks,
	// which takes at most half a minute.
	whyTimeout       = 12 * time.Second
	whyStacksTimeout = 45 * time.Second
	// whySampleTime is the time during which a node measures processor use.
	whySampleTime = time.Second
	// whyNodeCommandName is the subcommand that nodes run.
	whyNodeCommandName = "why-node"
)

var errWhyTimeout = errors.New("it has not answered in time")

// whyCmd is one execution of bringupd why.
type whyCmd struct {
	*invocation
	selector           runSelector
	nodeNames          []string
	readStacks, asJSON bool
}

func (inv *invocation) whyCommand() *cli.Command {
	a := &whyCmd{invocation: inv}
	own := setting.List{
		a.selector.newLogDirSetting(),
		setting.NewWordList("node", "NODE", &a.nodeNames, "only this one, a rank or a host; may be repeated").ExcludeSources(setting.SourceVariable),
		setting.NewSwitch("stacks", &a.readStacks, "where in their programs they are: by py-spy for Python and gdb for all else, where they are installed").ExcludeSources(setting.SourceVariable),
		setting.NewSwitch("json", &a.asJSON, "print it as JSON, for programs").ExcludeSources(setting.SourceVariable),
	}
	return inv.completeCommand(cli.Command{
		Name: "why", Usage: "show what the driver, the ranks and the services of a running job are doing, to explain a hang",
		UsageText: "bringupd why [flags] [RUN | LOG-DIRECTORY]",
		Description: runArgHelp + " Those who do the same are shown together, and the fewest first: they are mostly whom all others wait for. " +
			"Exits with 0; 76 if a node does not answer, or the head, which passes the question on, does not.",
	}, setting.AssignCategory(resultHeading, own...), a.runWhy)
}

func (a *whyCmd) runWhy(args []string) error {
	return a.withSignals(func(ctx context.Context, again <-chan struct{}) error {
		opening, cancel := withRequestTimeout(ctx)
		defer cancel()
		run, err := a.selector.openSelected(opening, args, true)
		if err != nil {
			return err
		}
		return a.collectSnapshots(ctx, run, again)
	})
}

// collectSnapshots makes all nodes inspect their processes, and prints the result.
func (a *whyCmd) collectSnapshots(ctx context.Context, run openedRun, again <-chan struct{}) error {
	order := exec.Request{Argv: []string{whyNodeCommandName}, OwnProgram: true, Nodes: a.nodeNames}
	if len(a.nodeNames) == 0 {
		order.Nodes = []string{exec.AllNodes}
	}
	limit := whyTimeout
	if a.readStacks {
		order.Argv, limit = append(order.Argv, "--stacks"), whyStacksTimeout
	}
	told, times := make(map[int]*bytes.Buffer), exec.Timeouts{Accept: 10 * time.Second, AfterRun: 2 * time.Second, AfterCancel: 2 * time.Second, HeartbeatInterval: time.Second}
	waiting, cancel := context.WithTimeoutCause(ctx, limit, errWhyTimeout)
	defer cancel()
	caller := exec.New(run.Dir, run.jobRecord, order, peerlink.TCP{}, times, io.Discard, io.Discard).SetNodeWriter(func(node int) io.Writer {
		told[node] = new(bytes.Buffer)
		return told[node]
	})
	answers, err := caller.Execute(waiting, again)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrRefused):
		return usageErrorf("%v", err)
	case len(answers) == 0:
		a.exitCode = health.OutcomeOfKind(health.PeerLost).Code
		a.printMessage("cannot ask run %s: %v; the daemon of the head may be stopped, or hang, or be older than this program: see bringupd status", run.Name(), err)
		return nil
	}
	return a.showSnapshot(newRunSnapshot(run.Name(), answers, told, err))
}

func (a *whyCmd) showSnapshot(picture stackdump.RunSnapshot) error {
	if len(picture.Unreachable) > 0 {
		a.exitCode = health.OutcomeOfKind(health.PeerLost).Code
	}
	if a.asJSON {
		return writeJSON(a.streams.Out, picture)
	}
	_, err := io.WriteString(a.streams.Out, picture.FormatText())
	return err
}

// newRunSnapshot combines the answers of the nodes, and lists those without a response.
func newRunSnapshot(run string, answers []exec.Result, told map[int]*bytes.Buffer, missing error) stackdump.RunSnapshot {
	var seen []stackdump.ChildReport
	var silent []stackdump.UnreachableNode
	for _, node := range answers {
		switch {
		case !node.Answered:
			silent = append(silent, stackdump.UnreachableNode{Node: node.NodeIndex, Host: node.Host, Reason: fmt.Sprint(missing)})
		case node.Exit.Code != 0:
			silent = append(silent, stackdump.UnreachableNode{Node: node.NodeIndex, Host: node.Host, Reason: cmp.Or(node.Exit.Failed, node.Exit.Exit)})
		}
		for line := range bytes.Lines(told[node.NodeIndex].Bytes()) {
			var one stackdump.ChildReport
			if json.Unmarshal(line, &one) == nil { // a truncated answer is that of a silent node
				one.Node, one.Host = node.NodeIndex, node.Host
				seen = append(seen, one)
			}
		}
	}
	return stackdump.NewRunSnapshot(run, len(answers), seen, silent)
}

// whyNodeCommand returns the subcommand that a daemon runs to inspect its node.
func (inv *invocation) whyNodeCommand() *cli.Command {
	var stacks bool
	all := setting.List{setting.NewSwitch("stacks", &stacks, "read stacks, too").ExcludeSources(setting.SourceVariable)}
	return inv.completeCommand(cli.Command{
		Name: whyNodeCommandName, Usage: "print what the children of this node's daemon are doing, as JSON lines",
		UsageText: "bringupd why-node [--stacks]",
		Hidden:    true,
	}, all, func([]string) error {
		return inv.withSignals(func(ctx context.Context, _ <-chan struct{}) error { return inv.inspectNode(ctx, stacks) })
	})
}

// inspectNode inspects the node of the daemon that has started this process.
func (inv *invocation) inspectNode(ctx context.Context, stacks bool) error {
	value, told := os.LookupEnv(stackdump.ChildrenVariable)
	if !told {
		return usageErrorf("cannot look at a node: no daemon has started this; bringupd why asks all of them")
	}
	children, err := stackdump.ParseChildren(value)
	out := json.NewEncoder(inv.streams.Out)
	stackdump.NodeInspection{Children: children, ListWaits: localWaits, ReadStacks: stacks, Duration: whySampleTime}.InspectChildren(ctx, func(seen stackdump.ChildReport) {
		err = cmp.Or(err, out.Encode(seen))
	})
	return err
}

// localWaits returns the rendezvous operations for which the ranks of this node wait. It returns
// none if there is no rendezvous.
func localWaits(ctx context.Context) (waits []stackdump.Wait, err error) {
	meeting, err := client.Dial(ctx)
	if errors.Is(err, client.ErrNoSocket) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer meeting.Close()
	known, err := meeting.PendingWaits(ctx)
	for _, wait := range known {
		waits = append(waits, stackdump.Wait{Child: fmt.Sprintf("rank %d", wait.Rank), Kind: wait.Kind, Name: wait.Name, SinceS: wait.WaitedSeconds, Missing: wait.Missing})
	}
	return waits, err
}
