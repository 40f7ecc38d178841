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

var errWhyTimeout = errors.New("no answer in time")

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
		setting.NewWordList("node", "NODE", &a.nodeNames, "only this node, by its index or host name (repeatable)").ExcludeSources(setting.SourceVariable),
		setting.NewSwitch("stacks", &a.readStacks, "also show stacks, by py-spy for Python and gdb for other programs, if installed").ExcludeSources(setting.SourceVariable),
		setting.NewSwitch("json", &a.asJSON, "print JSON").ExcludeSources(setting.SourceVariable),
	}
	return inv.completeCommand(cli.Command{
		Name: "why", Usage: "show what the processes of a running job do, to explain a hang",
		UsageText: "bringupd why [flags] [RUN | LOG-DIRECTORY]",
		Description: runArgHelp + " Processes in the same state form a group; the smallest group comes first: usually all others wait for it. " +
			"Exits with 0, or 76 if a node or the head does not answer.",
	}, setting.AssignCategory(outputHeading, own...), a.runWhy)
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
	outputs, times := make(map[int]*bytes.Buffer), exec.Timeouts{Accept: 10 * time.Second, AfterRun: 2 * time.Second, AfterCancel: 2 * time.Second, HeartbeatInterval: time.Second}
	waiting, cancel := context.WithTimeoutCause(ctx, limit, errWhyTimeout)
	defer cancel()
	caller := exec.New(run.Dir, run.jobRecord, order, peerlink.TCP{}, times, io.Discard, io.Discard).SetNodeWriter(func(node int) io.Writer {
		outputs[node] = new(bytes.Buffer)
		return outputs[node]
	})
	answers, err := caller.Execute(waiting, again)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrRefused):
		return usageErrorf("%v", err)
	case len(answers) == 0:
		a.exitCode = health.OutcomeOfKind(health.PeerLost).Code
		a.printMessage("cannot query run %s: %v; the head's daemon may be stopped, hang, or be older than this program: see bringupd status", run.Name(), err)
		return nil
	}
	return a.showSnapshot(newRunSnapshot(run.Name(), answers, outputs, err))
}

func (a *whyCmd) showSnapshot(snapshot stackdump.RunSnapshot) error {
	if len(snapshot.Unreachable) > 0 {
		a.exitCode = health.OutcomeOfKind(health.PeerLost).Code
	}
	if a.asJSON {
		return writeJSON(a.streams.Out, snapshot)
	}
	_, err := io.WriteString(a.streams.Out, snapshot.FormatText())
	return err
}

// newRunSnapshot combines the answers of the nodes, and lists those without a response.
func newRunSnapshot(run string, answers []exec.Result, outputs map[int]*bytes.Buffer, missing error) stackdump.RunSnapshot {
	var seen []stackdump.ChildReport
	var silent []stackdump.UnreachableNode
	for _, node := range answers {
		switch {
		case !node.Answered:
			silent = append(silent, stackdump.UnreachableNode{Node: node.NodeIndex, Host: node.Host, Reason: fmt.Sprint(missing)})
		case node.Exit.Code != 0:
			silent = append(silent, stackdump.UnreachableNode{Node: node.NodeIndex, Host: node.Host, Reason: cmp.Or(node.Exit.Failed, node.Exit.Exit)})
		}
		for line := range bytes.Lines(outputs[node.NodeIndex].Bytes()) {
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
	all := setting.List{setting.NewSwitch("stacks", &stacks, "also read stacks").ExcludeSources(setting.SourceVariable)}
	return inv.completeCommand(cli.Command{
		Name: whyNodeCommandName, Usage: "print the state of the children of this node's daemon, as JSON lines",
		UsageText: "bringupd why-node [--stacks]",
		Hidden:    true,
	}, all, func([]string) error {
		return inv.withSignals(func(ctx context.Context, _ <-chan struct{}) error { return inv.inspectNode(ctx, stacks) })
	})
}

// inspectNode inspects the node of the daemon that has started this process.
func (inv *invocation) inspectNode(ctx context.Context, stacks bool) error {
	value, isSet := os.LookupEnv(stackdump.ChildrenVariable)
	if !isSet {
		return usageErrorf("cannot inspect a node: this command is only for daemons; use bringupd why")
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
