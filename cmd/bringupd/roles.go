package main

import (
	"errors"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/preflight/roleplan"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

func (inv *invocation) rolesCommand() *cli.Command {
	var previewPath, scriptPath string
	var printsSchema bool
	request := roleplan.Request{Env: os.LookupEnv, Settings: []string{setting.DriverFileKey}}
	request.Identify = func() (launcher.Identity, error) {
		host, err := os.Hostname()
		if err != nil {
			return launcher.Identity{}, err
		}
		return newOptions().identifyDaemon(host)
	}
	own := setting.AssignCategory("Roles",
		setting.NewText("dry-run", "FILE", &previewPath, "print which instance of each role in the file would run on which node, with which GPUs and ports"),
		setting.NewText("sbatch", "FILE", &scriptPath, "print a job script for Slurm with an srun for the daemons and for each step in the file"),
		setting.NewSwitch("schema", &printsSchema, "print the JSON schema of the file, for editors"),
		setting.NewNumberList("nodes", &request.Counts, 1, 1_000_000, "number of nodes, or of each component of a heterogeneous job (default: those of this job)"),
		setting.NewNumberList("gpus-per-node", &request.GPUs, 0, 1024, "GPUs of each node, or of each component's nodes (default: those of this job, or 0)"),
	)
	for _, s := range own {
		s.ExcludeSources(setting.SourceVariable, setting.SourceFile)
	}
	return inv.completeCommand(cli.Command{
		Name: "roles", Usage: "show where the roles of a file would run",
		UsageText:   "bringupd roles --dry-run job.yaml --nodes=8 --gpus-per-node=8\nbringupd roles --sbatch job.yaml --nodes=8 --gpus-per-node=8 > job.sbatch\nbringupd roles --schema > roles.schema.json",
		Description: "Roles are several named programs in one job: docs/roles.md describes the file. A file with a mistake, and roles that do not fit on the nodes, end with 64.",
	}, own, func([]string) error {
		request.Path = previewPath + scriptPath
		switch {
		case printsSchema && request.Path == "":
			_, err := inv.streams.Out.Write(rolefile.Schema())
			return err
		case printsSchema || (previewPath == "") == (scriptPath == ""):
			return usageErrorf("cannot show roles: give one of --dry-run=FILE, --sbatch=FILE and --schema")
		}
		for _, s := range newOptions().daemonSettings().FilterSettings((*setting.Setting).IsFileKey) {
			request.Settings = append(request.Settings, s.Name)
		}
		file, err := inv.readUserFile("the roles", request.Path)
		if err != nil {
			return err
		}
		format := request.FormatTable
		if scriptPath != "" {
			format = request.FormatScript
		}
		text, err := format(file)
		if _, isLaunch := errors.AsType[*launcher.LaunchError](err); err != nil && !isLaunch {
			return usageErrorf("%v", err)
		}
		_, writeErr := io.WriteString(inv.streams.Out, text)
		return errors.Join(err, writeErr)
	})
}
