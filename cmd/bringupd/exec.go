package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/health"
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
		return e.reportAnswers(caller.Execute(ctx, again))
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

// reportAnswers reports failures with their nodes, and sets the exit code.
func (e *execCmd) reportAnswers(answers []exec.Result, err error) error {
	lost := codeOf(health.PeerLost)
	for _, node := range answers {
		code := node.Exit.Code
		switch {
		case !node.Answered:
			code = lost
			if err != nil && !errors.Is(err, unix.EPIPE) {
				e.printMessage("%s: no answer: %v", node.Host, err)
			}
		case node.Exit.Failed != "" || code != 0:
			e.printMessage("%s: %s", node.Host, cmp.Or(node.Exit.Failed, node.Exit.Exit))
		}
		if node.Exit.Dropped > 0 {
			e.printMessage(
				"%s: %d bytes of output were dropped: redirect large output to a file",
				node.Host, node.Exit.Dropped)
		}
		e.exitCode = max(e.exitCode, code)
	}
	switch {
	case errors.Is(err, unix.EPIPE): // the reader has closed the pipe
		e.exitCode = 128 + int(unix.SIGPIPE)
		return nil
	case errors.Is(err, exec.ErrRefused):
		return usageErrorf("%v", err)
	case errors.Is(err, exec.ErrNoAnswer), errors.Is(err, exec.ErrRunOver):
		e.exitCode = max(e.exitCode, lost)
		if len(answers) == 0 {
			e.printMessage(
				"cannot run the command: %v; check the run with bringupd status; its bringupd may also be "+
					"older than exec", err)
		}
		return nil
	}
	return err
}
