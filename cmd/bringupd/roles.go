package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/preflight"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

func (inv *invocation) rolesCommand() *cli.Command {
	var previewPath, scriptPath string
	var which runSelector
	query := runs.RoleQuery{Out: inv.streams.Out}
	request := preflight.PreviewRequest{Env: os.LookupEnv}
	request.Identify = func() (launcher.Identity, error) {
		host, err := os.Hostname()
		if err != nil {
			return launcher.Identity{}, err
		}
		return newOptions().identifyDaemon(host, nil)
	}
	own := config.FlagsOnly(config.AssignCategory("Roles",
		config.NewText("dry-run", "FILE", &previewPath,
			"print which instance of each role in the file would run on which node, with which GPUs and ports"),
		config.NewText("fail", "WHAT", &request.Fault,
			"with --dry-run, print what follows if this fails after the gate has opened: an instance of a "+
				"role, such as judge.1, or a node, such as node:3"),
		config.NewText("sbatch", "FILE", &scriptPath,
			"print a job script for Slurm with an srun for the daemons and for each step in the file"),
		config.NewNumberList("nodes", &request.Counts, 1, 1_000_000,
			"number of nodes, or of each component of a heterogeneous job (default: those of this job)"),
		config.NewNumberList("gpus-per-node", &request.GPUs, 0, 1024,
			"GPUs of each node, or of each component's nodes (default: those of this job, or 0)"),
	)...)
	own = append(own, which.settings("A run",
		config.NewValue("format", "TEXT", &query.Format, runs.ParseEndpointFormat, config.ShowText,
			"print each planned endpoint of the role in this form: %h is its host, %p its port, %a both, "+
				"%i the index of the instance, %% a percent sign"),
		config.NewSwitch("watch", &query.Watch,
			"print the endpoints of the role that are ready in one line, whenever they change, until the run "+
				"ends"),
		config.NewSwitch("json", &query.AsJSON, "print JSON"))...)
	return inv.completeCommand(cli.Command{
		Name: "roles", Usage: "show the roles of a run, or where those of a file would run",
		UsageText: "bringupd roles [--json] [ROLE] [RUN | LOG-DIRECTORY]\nbringupd roles {--format=TEXT | " +
			"--watch} ROLE [RUN | LOG-DIRECTORY]\n" +
			"bringupd roles --dry-run job.yaml --nodes=8 --gpus-per-node=8 [--fail=judge.1]\nbringupd " +
			"roles --sbatch job.yaml --nodes=8 --gpus-per-node=8 > job.sbatch",
		Description: "Roles are several named programs in one job: docs/roles.md describes the file. " + runArgHelp +
			" Without --format and --watch, the command prints the state of each instance. A file with a " +
			"mistake, and roles that do not fit on the nodes, end with 64.",
	}, append(own, removedSettings("roles")...), func(args []string) error {
		request.Path = previewPath + scriptPath
		switch {
		case request.Fault != "" && previewPath == "":
			return usageErrorf(
				"cannot show what follows from a failure: give the file with the roles, for example " +
					"--dry-run=job.yaml")
		case request.Path == "":
			return inv.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
				return which.printRoles(ctx, query, args)
			})
		case (previewPath == "") == (scriptPath == ""):
			return usageErrorf(
				"cannot show roles: give one of --dry-run=FILE and --sbatch=FILE, or none for those of a run")
		}
		opts := newOptions()
		set := &opts.cfg.Roles
		if err := set.ReadFile(request.Path, opts.daemonSettings(), inv.readUserFile); err != nil {
			return err
		}
		if err := inv.judgeRoles(*set, request); err != nil {
			return err
		}
		format := request.FormatText
		if scriptPath != "" {
			format = request.FormatScript
		}
		text, err := format(rolefile.File{Roles: set.Definitions, Spares: set.Spares})
		if _, isLaunch := errors.AsType[*launcher.LaunchError](err); err != nil && !isLaunch {
			return usageErrorf("%v", err)
		}
		_, writeErr := io.WriteString(inv.streams.Out, text)
		return errors.Join(err, writeErr)
	})
}

// judgeRoles returns an error for a launcher, such as torchrun, that does not fit the nodes of a request,
// and prints a warning about one that may not.
func (inv *invocation) judgeRoles(set config.RoleSet, request preflight.PreviewRequest) error {
	nodes := 0
	for _, count := range request.Counts {
		nodes += count
	}
	if id, err := request.Identify(); nodes == 0 && err == nil {
		nodes = id.Size
	}
	warnings, err := set.JudgeCommands(nodes, os.Environ())
	for _, sentence := range warnings {
		inv.printMessage("warning: %s", sentence)
	}
	if err != nil {
		return usageErrorf("%v", err)
	}
	return nil
}

// printRoles answers a query about the roles of the run that the arguments select. A single argument
// is a run if that exists, and otherwise a role. With a format or a watch it is a role.
func (w *runSelector) printRoles(ctx context.Context, query runs.RoleQuery, args []string) (err error) {
	isRole := len(args) == 2 || len(args) == 1 && !strings.Contains(args[0], "/")
	if len(args) == 1 && isRole && query.Format == "" && !query.Watch {
		_, err := w.findRun(ctx, args)
		isRole = err != nil
	}
	if isRole {
		query.Role, args = args[0], args[1:]
	}
	if query.Watch && query.Role == "" {
		return usageErrorf(
			"cannot watch the roles of a run: give one of them, for example: bringupd roles --watch judge")
	}
	if query.Path, err = w.findRun(ctx, args); err != nil {
		if ext := filepath.Ext(query.Role); ext == ".yaml" || ext == ".yml" {
			return usageErrorf("cannot show the roles of a file like those of a run: give --dry-run=%s",
				textutil.QuoteShellWord(query.Role))
		}
		return runArgError(err)
	}
	if own := os.Getenv("BRINGUPD_RUN_DIR"); own == query.Path {
		query.EndpointsFile = os.Getenv(runs.EndpointsVariable(query.Role))
	}
	if err = query.Print(ctx); errors.Is(err, unix.EPIPE) {
		return nil // the reader has closed the pipe
	}
	return runArgError(err)
}
