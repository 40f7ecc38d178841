package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
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

type whyCmd struct {
	*invocation
	selector           runSelector
	nodeNames          []string
	instance           string
	readStacks, asJSON bool
}

func (inv *invocation) whyCommand() *cli.Command {
	a := &whyCmd{invocation: inv}
	own := a.selector.settings(outputHeading,
		config.NewWordList("node", "NODE", &a.nodeNames,
			"only this node, by its index or host name (repeatable)"),
		config.NewText("instance", "NAME", &a.instance,
			"only the processes of this instance of a role, such as trainer.0"),
		config.NewSwitch("stacks", &a.readStacks,
			"also show stacks, by py-spy for Python and gdb for other programs, if installed"),
		config.NewSwitch("json", &a.asJSON, "print JSON"),
	)
	return inv.completeCommand(cli.Command{
		Name: "why", Usage: "show what the processes of a running job do, to explain a hang",
		UsageText: "bringupd why [flags] [RUN | LOG-DIRECTORY]",
		Description: runArgHelp + " Processes in the same state form a group; the smallest group comes " +
			"first: usually all others wait for it. " +
			"Exits with 0, or 76 if a node or the head does not answer.",
	}, own, func(args []string) error { return a.withRun(&a.selector, args, a.collectSnapshots) })
}

// collectSnapshots makes all nodes inspect their processes, and prints the result.
func (a *whyCmd) collectSnapshots(ctx context.Context, again <-chan struct{}, run runs.Opened) error {
	order := exec.Request{
		Argv: []string{whyNodeCommandName, "--instance=" + a.instance}, OwnProgram: true,
		Nodes: []string{exec.AllNodes + exec.StepsSuffix},
	}
	if len(a.nodeNames) > 0 {
		order.Nodes = exec.WithSteps(a.nodeNames)
	}
	limit := whyTimeout
	if a.readStacks {
		order.Argv, limit = append(order.Argv, "--stacks"), whyStacksTimeout
	}
	waiting, cancel := context.WithTimeoutCause(ctx, limit, errWhyTimeout)
	defer cancel()
	snapshot, err := exec.CollectSnapshot(waiting, again, run.Dir, run.Job, order)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrRefused):
		return usageErrorf("%v", err)
	case err != nil:
		a.exitCode = codeOf(health.PeerLost)
		a.printMessage(
			"cannot query run %s: %v; the head's daemon may be stopped, hang, or be older than this program: "+
				"see bringupd status", run.Name(), err)
		return nil
	}
	diagnosis := exec.Diagnosis{RunSnapshot: snapshot}
	if len(a.nodeNames) == 0 {
		diagnosis.NCCL = exec.AskNCCL(ctx, again, run.Dir, run.Job, order, snapshot)
	}
	// What the roles wait for is in the run directory.
	roles, err := runs.ReadRoles(ctx, run.Path(), run.Job.Plan)
	if err != nil {
		return err
	}
	return a.showDiagnosis(diagnosis, roles)
}

func (a *whyCmd) showDiagnosis(snapshot exec.Diagnosis, roles []timeline.RoleStatus) error {
	if len(snapshot.Unreachable) > 0 {
		a.exitCode = codeOf(health.PeerLost)
	}
	if a.asJSON {
		return writeJSON(a.streams.Out, struct {
			exec.Diagnosis
			Roles []timeline.RoleStatus `json:"roles,omitempty"`
		}{snapshot, roles})
	}
	lines := append([]string{strings.TrimSuffix(snapshot.FormatText(), "\n")}, timeline.RoleLines(roles)...)
	_, err := io.WriteString(a.streams.Out, strings.Join(lines, "\n")+"\n")
	return err
}

// whyNodeCommand returns the subcommand that a daemon runs to inspect its node.
func (inv *invocation) whyNodeCommand() *cli.Command {
	var stacks, askNCCL bool
	var instance string
	all := config.FlagsOnly(
		config.NewText("instance", "NAME", &instance,
			"only the processes of this instance"),
		config.NewSwitch("stacks", &stacks, "also read stacks"),
		config.NewSwitch(strings.TrimPrefix(exec.NCCLFlag, "--"), &askNCCL, "ask NCCL instead"),
	)
	return inv.completeCommand(cli.Command{
		Name: whyNodeCommandName, Usage: "print the state of the children of this node's daemon, as JSON lines",
		UsageText: "bringupd why-node [--stacks | --nccl]",
		Hidden:    true,
	}, all, func([]string) error {
		return inv.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
			if askNCCL {
				return json.NewEncoder(inv.streams.Out).Encode(exec.AskNodeNCCL(ctx, os.LookupEnv))
			}
			return inv.inspectNode(ctx, instance, stacks)
		})
	})
}

// inspectNode inspects the node of the daemon that has started this process.
func (inv *invocation) inspectNode(ctx context.Context, instance string, stacks bool) error {
	value, isSet := os.LookupEnv(stackdump.ChildrenVariable)
	if !isSet {
		return usageErrorf("cannot inspect a node: this command is only for daemons; use bringupd why")
	}
	children, err := stackdump.ParseChildren(value)
	children = stackdump.SelectChildren(children, instance)
	hasNCCL := exec.NodeHasNCCL(os.LookupEnv)
	out := json.NewEncoder(inv.streams.Out)
	waits := func(ctx context.Context) ([]stackdump.Wait, error) { return rendezvous.ListLocalWaits(ctx, children) }
	inspection := stackdump.NodeInspection{
		Children: children, ListWaits: waits, ReadStacks: stacks, Duration: whySampleTime,
	}
	inspection.InspectChildren(ctx, func(seen stackdump.ChildReport) {
		seen.HasNCCL = hasNCCL
		err = cmp.Or(err, out.Encode(seen))
	})
	return err
}
