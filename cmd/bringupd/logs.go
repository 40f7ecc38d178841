package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/logs"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/setting"
	"github.com/bringupd/bringupd/pkg/signal"
)

// reading is one execution of bringupd logs.
type reading struct {
	*invocation
	which  whichRun
	follow bool
	raw    bool
}

func (inv *invocation) logsCommand() *cli.Command {
	r := &reading{invocation: inv}
	own := setting.List{
		setting.Yes("follow", &r.follow, "go on until the run is over").Not(setting.ByVariable).Short("f"),
		setting.Yes("raw", &r.raw, "show what a log has as it is, on a terminal, too").Not(setting.ByVariable),
		r.which.setting(),
	}
	return inv.command(cli.Command{
		Name: "logs", Usage: "show what the driver, a rank, the head's service or a node has said",
		UsageText: "bringupd logs [flags] [driver | head | ranks | rank-N | NODE] [RUN | LOG-DIR]\n" +
			"bringupd logs [flags] FRAMEWORK [NODE [FILE]] [RUN | LOG-DIR]",
		Description: "A node is its number, or a host where no node has that number; ranks are all of the job's world. " + aRun +
			" Where none of these is named it shows the driver's log, or those of all ranks, or the head's if there is neither. " +
			"With a framework's name, as ray, it shows which nodes' logs of its own are in the run directory, those of a node, or one of them, by its name or what that begins with. " +
			"On a terminal control characters are shown, not obeyed; elsewhere logs come as they are.",
	}, setting.Under(otherFlags, own...), r.do)
}

func (r *reading) do(args []string) error {
	err := r.heeding(func(ctx context.Context, _ <-chan struct{}) error {
		if len(args) > 0 && slices.Contains(frameworkNames()[1:], args[0]) { // the first framework has no logs of its own
			return r.kept(ctx, args[0], args[1:])
		}
		run, word, meant, err := r.open(ctx, args)
		if err != nil {
			return err
		}
		shown, err := r.of(run).Show(ctx, meant)
		if silent := logs.Printer(word, run.job.Plan); err == nil && shown == 0 && silent != "" {
			r.say("%s of run %s printed nothing", silent, run.Name())
			return nil
		}
		if err == nil && shown == 0 {
			r.say("cannot show that log: nothing was printed to it, or %s has none of that name", filepath.Join(run.Path(), signal.Logs))
			r.code = 1
		}
		return err
	})
	var wrong *logs.WordError
	switch {
	case errors.Is(err, unix.EPIPE):
		return nil // the reader has closed the pipe
	case errors.As(err, &wrong):
		return usage("%v", err)
	}
	return err
}

// open opens the run, and returns the selected logs and the word that selects them.
func (r *reading) open(ctx context.Context, args []string) (run openRun, word string, meant logs.Meant, err error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	if word, run, err = r.which.openNode(ctx, args, false); err != nil {
		return run, word, nil, err
	}
	meant, err = logs.Named(ctx, run.Dir, word, func(ctx context.Context, name string) (int, error) {
		rank, _, err := run.node(ctx, name)
		return rank, err
	})
	return run, word, meant, err
}

// kept prints a framework's own logs: the nodes that have any, the files of a node, or one file.
func (r *reading) kept(ctx context.Context, framework string, args []string) error {
	bounded, cancel := inTime(ctx)
	defer cancel()
	node, file, run, err := r.which.openFile(bounded, args)
	if err != nil {
		return err
	}
	if r.follow && file == "" {
		return usage("cannot follow a list: give a node and one of its files, as in: bringupd logs -f %s head FILE", framework)
	}
	rank := 0
	if node != "" && node != "head" {
		if rank, _, err = run.node(bounded, node); err != nil {
			return err
		}
	}
	kept, shown, what := logs.Kept{Run: run.Dir, Of: framework}, 0, ""
	switch {
	case node == "":
		shown, err = kept.Nodes(ctx, r.files.Out, run.job.Size)
	case file == "":
		what = fmt.Sprintf(" of rank %d", rank)
		shown, err = kept.Files(ctx, r.files.Out, rank)
	default:
		what = fmt.Sprintf(" of rank %d named %s", rank, setting.OneLine(file))
		shown, err = r.of(run).Show(ctx, kept.File(rank, file))
	}
	if err == nil && shown == 0 {
		r.say("cannot show logs of %s: there is none%s in %s%s", framework, what, filepath.Join(run.Path(), signal.Logs), broughtBy(framework))
		r.code = 1
	}
	return err
}

// broughtBy describes when a framework's own logs are copied to the run directory, if a flag of the
// framework selects that.
func broughtBy(framework string) string {
	for _, f := range frameworks() {
		for _, flag := range f.Flags() {
			if f.Name() == framework && flag.Name == framework+"-logs" {
				return "; they come there at the end of a run that fails, or by --" + flag.Name + "=end or a duration"
			}
		}
	}
	return ""
}

// of returns a reader for the logs of a run.
func (r *reading) of(run openRun) *logs.Reading {
	var out io.Writer = r.files.Out
	if isTerminal(r.files.Out) && !r.raw {
		out = &prose.Inert{To: out}
	}
	return &logs.Reading{Run: run.Dir, Out: out, Follow: r.follow}
}
