package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/peerlink"
)

// maxCommandBytes is the maximum size of a request in bytes.
const maxCommandBytes = 128 << 10

type execCmd struct {
	*invocation
	selector  runSelector
	nodeNames []string
	allNodes  bool
	onHead    bool
	roleWords []string
	variables []string
}

func (inv *invocation) execCommand() *cli.Command {
	e := &execCmd{invocation: inv}
	own := e.selector.settings("Nodes and environment",
		config.NewWordList("node", "NODE", &e.nodeNames,
			"node, by its index or host name (repeatable)"),
		config.NewSwitch("all", &e.allNodes, "all nodes"),
		config.NewWordList("role", "ROLE[.INSTANCE]", &e.roleWords,
			"the nodes of a role, or of an instance of it, such as judge.1, with its variables "+
				"(repeatable)"),
		config.NewSwitch("head", &e.onHead, "the head (default)"),
		config.NewWordList("env", "NAME[=VALUE]", &e.variables,
			"environment variable for the command; without VALUE, its current value (repeatable)"),
	)
	return inv.completeCommand(cli.Command{
		Name: "exec", Usage: "run a command on nodes of a running job",
		UsageText: "bringupd exec [flags] [RUN | LOG-DIRECTORY] -- command [args]",
		Description: runArgHelp + " The command has the environment of the node's other processes and no " +
			"standard input. It is ended when this program or the run ends. " +
			"Its output is printed here; with several nodes each line is prefixed with the node's name. " +
			"Exits with the highest exit code of all nodes; 76 if a node is lost or does not answer; 125 " +
			"if the command cannot be started; 143 if the run ended first.",
	}, own, e.runExec)
}

func (e *execCmd) runExec(args []string) error {
	order, err := e.newRequest()
	if err != nil {
		return err
	}
	return e.withRun(&e.selector, args, func(ctx context.Context, again <-chan struct{}, run runs.Opened) error {
		if err := e.addRoles(ctx, run.Path(), &order); err != nil {
			return runArgError(err)
		}
		caller := exec.New(run.Dir, run.Job, order, peerlink.TCP{}, exec.DefaultTimeouts,
			e.streams.Out, e.streams.Err)
		answers, err := caller.Execute(ctx, again)
		if e.exitCode, err = exec.ReportAnswers(answers, err, e.printMessage); errors.Is(err, exec.ErrRefused) {
			return usageErrorf("%v", err)
		}
		return err
	})
}

func (e *execCmd) newRequest() (exec.Request, error) {
	order := exec.Request{Argv: e.driver, Nodes: e.nodeNames}
	if len(e.driver) == 0 {
		return order, usageErrorf(
			"cannot run without a command: give one after --, for example: bringupd exec --all -- hostname")
	}
	if e.allNodes {
		order.Nodes = append(order.Nodes, exec.AllNodes)
	}
	if e.onHead || len(order.Nodes)+len(e.roleWords) == 0 {
		order.Nodes = append(order.Nodes, exec.HeadNode)
	}
	env, err := config.ResolveVariables("env", e.variables)
	if err != nil {
		return order, usageErrorf("%v", err)
	}
	order.Env = append(order.Env, env...)
	if length := len(strings.Join(slices.Concat(order.Argv, order.Env), "")); length > maxCommandBytes {
		return order, usageErrorf(
			"cannot pass on a command of %d bytes: at most %d; use a script", length, maxCommandBytes)
	}
	return order, nil
}

// addRoles adds the nodes of the roles to a request. The variables of the user take precedence.
func (e *execCmd) addRoles(ctx context.Context, run string, order *exec.Request) error {
	if len(e.roleWords) == 0 {
		return nil
	}
	ctx, cancel := withRequestTimeout(ctx)
	defer cancel()
	nodes, env, err := runs.SelectNodes(ctx, run, e.roleWords)
	order.Nodes, order.Env = append(order.Nodes, nodes...), append(env, order.Env...)
	return err
}
