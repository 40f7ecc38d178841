package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
	"github.com/bringupd/bringupd/pkg/request"
	"github.com/bringupd/bringupd/pkg/secret"
	"github.com/bringupd/bringupd/pkg/setting"
)

// longestCommand is the maximum size of a request in bytes.
const longestCommand = 128 << 10

// execing is one execution of bringupd exec.
type execing struct {
	*invocation
	which whichRun
	nodes []string
	all   bool
	head  bool
	env   []string
}

func (inv *invocation) execCommand() *cli.Command {
	e := &execing{invocation: inv}
	own := setting.List{
		setting.Words("node", "NODE", &e.nodes, "a rank, or a host; may be repeated").Not(setting.ByVariable),
		setting.Yes("all", &e.all, "all nodes").Not(setting.ByVariable),
		setting.Yes("head", &e.head, "the head, which is meant where none is named").Not(setting.ByVariable),
		setting.Words("env", "NAME[=VALUE]", &e.env, "variable for the command, on top of the node's environment; without a value, the one that it has here; may be repeated").Not(setting.ByVariable),
		e.which.setting(),
	}
	return inv.command(cli.Command{
		Name: "exec", Usage: "run a command on nodes of a running job",
		UsageText: "bringupd exec [flags] [RUN | LOG-DIRECTORY] -- command [args]",
		Description: aRun + " The command has the same environment as all else on the node, no standard input, and ends when this program ends. " +
			"Its output is printed here, each line with the node's name before it if there are several nodes. " +
			"Exits with the command's code, the highest of several; 76 if a node is lost or does not answer before the run has ended; 125 if it can't be started. " +
			"When the run ends, its commands get TERM, which makes 143.",
	}, setting.Under("Where", own...), e.do)
}

func (e *execing) do(args []string) error {
	order, err := e.orderOf()
	if err != nil {
		return err
	}
	return e.heeding(func(ctx context.Context, again <-chan struct{}) error {
		opening, cancel := inTime(ctx)
		defer cancel()
		run, err := e.which.open(opening, args, true)
		if err != nil {
			return err
		}
		caller := request.New(run.Dir, run.job, order, lifeline.TCP{}, request.UsualTimes, e.files.Out, e.files.Err)
		return e.conclude(caller.Do(ctx, again))
	})
}

// orderOf makes a request from the command line.
func (e *execing) orderOf() (request.Order, error) {
	order := request.Order{Argv: e.driver, Nodes: e.nodes}
	if len(e.driver) == 0 {
		return order, usage("cannot run nothing: give a command behind --, as in: bringupd exec --all -- hostname")
	}
	if e.all {
		order.Nodes = append(order.Nodes, request.OnAll)
	}
	if e.head || len(order.Nodes) == 0 {
		order.Nodes = append(order.Nodes, request.OnHead)
	}
	env, err := namedHere("env", e.env)
	if err != nil {
		return order, err
	}
	order.Env = append(order.Env, env...)
	if length := len(strings.Join(slices.Concat(order.Argv, order.Env), "")); length > longestCommand {
		return order, usage("cannot pass on a command of %d bytes: at most %d; put it into a script", length, longestCommand)
	}
	return order, nil
}

// namedHere resolves the variables of a flag. An entry without a value gets the value in this
// environment.
func namedHere(flag string, entries []string) (env []string, err error) {
	for _, entry := range entries {
		name, _, given := strings.Cut(entry, "=")
		if name == "" {
			return nil, usage("cannot use --%s=%s: give NAME or NAME=VALUE", flag, setting.OneLine(secret.Redact(entry)))
		}
		if value, set := os.LookupEnv(name); !given && set {
			entry = name + "=" + value
		} else if !given {
			return nil, usage("cannot use --%s=%s: there is no such variable here", flag, setting.OneLine(name))
		}
		env = append(env, entry)
	}
	return env, nil
}

// conclude reports failures with their nodes, and sets the exit code.
func (e *execing) conclude(answers []request.Answer, err error) error {
	lost := health.OutcomeOf(health.PeerLost).Code
	for _, node := range answers {
		code := node.Exit.Code
		switch {
		case !node.Answered:
			code = lost
			if err != nil && !errors.Is(err, unix.EPIPE) {
				e.say("%s: no answer: %v", node.Host, err)
			}
		case node.Exit.Failed != "" || code != 0:
			e.say("%s: %s", node.Host, cmp.Or(node.Exit.Failed, node.Exit.Exit))
		}
		if node.Exit.Dropped > 0 {
			e.say("%s: %d bytes of the output are left out: let the command write so much into a file", node.Host, node.Exit.Dropped)
		}
		e.code = max(e.code, code)
	}
	switch {
	case errors.Is(err, unix.EPIPE): // the reader has closed the pipe
		e.code = 128 + int(unix.SIGPIPE)
		return nil
	case errors.Is(err, request.ErrRefused):
		return usage("%v", err)
	case errors.Is(err, request.ErrNoAnswer), errors.Is(err, request.ErrRunOver):
		e.code = max(e.code, lost)
		if len(answers) == 0 {
			e.say("cannot run it: %v; see whether the run lives, or has exec at all: its bringupd may be older", err)
		}
		return nil
	}
	return err
}
