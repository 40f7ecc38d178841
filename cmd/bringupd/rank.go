package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/roles"
)

// rankCmd is one execution of bringupd rank.
type rankCmd struct {
	*invocation
	variables     []string
	resources     affinity.ResourceKinds
	bindStrictly  bool
	allowLauncher bool
	nvmlPath      string
}

// rankCommand returns the subcommand for a rank that a launcher has started. The process becomes
// the program, and no part of bringupd remains.
func (inv *invocation) rankCommand() *cli.Command {
	b := &rankCmd{invocation: inv, resources: affinity.AllKinds()}
	own := setting.AssignCategory("What the rank is told, and has",
		variablesSetting("env", &b.variables, "variable of the rank, which wins over all others but BRINGUPD_…; an empty value takes it away; may be repeated").ExcludeSources(setting.SourceVariable),
		bindSetting(&b.resources, "what the rank is bound to, where the launcher has not bound it"),
		setting.NewSwitch("allow-launcher", &b.allowLauncher, "let the app be torchrun or another program that starts processes on its own node alone"),
		setting.NewSwitch("bind-strict", &b.bindStrictly, "let the rank fail, with 75, where it is not where it should be"),
		nvmlSetting(&b.nvmlPath),
	)
	return inv.completeCommand(cli.Command{
		Name: "rank", Usage: "become a rank that srun, mpirun or another launcher has started",
		UsageText: "srun --ntasks-per-node=4 --mpi=pmix bringupd rank [flags] -- app [args]",
		Description: "It finds out which rank this is from what srun, Open MPI's mpirun, MPICH's mpiexec, flux run, PALS, jsrun or torchrun tells each " +
			"of its processes, or from RANK and WORLD_SIZE, binds it to its share of the node (docs/binding.md), and becomes the app with that told in its environment: " +
			"BRINGUPD_RANK, RANK, LOCAL_RANK and so on (docs/ranks.md). " +
			"The launcher's own variables stay as they are, and those of launches around it are taken away. No daemon takes part, and no process of bringupd stays.",
	}, own, b.becomeRank)
}

func (b *rankCmd) becomeRank([]string) error {
	if len(b.driver) == 0 {
		return usageErrorf("cannot become a rank of nothing: give the command behind --, as in: srun bringupd rank -- ./app")
	}
	environ := os.Environ()
	rank, err := roles.IdentifyRank(roles.EnvironmentOf(environ), processAncestry)
	if err != nil {
		return err
	}
	if rank.RankCount > 1 && !b.allowLauncher {
		if err := ranks.CheckCommand(b.driver, rank.NodeCount, true); err != nil {
			return usageErrorf("%v", err)
		}
	}
	runtime.LockOSThread() // this thread is bound, and becomes the app
	defer runtime.UnlockOSThread()
	place, restore, err := b.bindThread(rank)
	if err != nil || b.exitCode != 0 {
		return err
	}
	err = process.ReplaceProcess(b.driver, ranks.PassThroughEnviron(environ, rank, place, b.variables))
	return errors.Join(fmt.Errorf("cannot start rank %d: %w", rank.Rank, err), restore())
}

// bindThread sets the affinity of the calling thread for the rank, or sets the exit code with which
// the process ends instead.
func (b *rankCmd) bindThread(rank roles.StartedRank) (place affinity.Affinity, restore func() error, err error) {
	if b.resources == (affinity.ResourceKinds{}) {
		return place, func() error { return nil }, nil
	}
	gpus, seen := gpu.QuickTopology("/")
	if !seen || b.nvmlPath != "" {
		if _, err = b.runAbandonable(nil, func(ctx context.Context) (err error) {
			gpus, _, err = gpu.Child{Library: b.nvmlPath}.ProbeTopology(ctx)
			return err
		}); err != nil || b.exitCode != 0 {
			return place, nil, err
		}
	}
	place, restore, differences, err := ranks.BindSelf(rank, gpus, b.resources)
	if err != nil {
		return place, nil, err
	}
	return place, restore, b.checkAffinity(rank, differences, restore)
}

// checkAffinity reports differences of the affinity. If no rank can be bound, only the first one
// reports it.
func (b *rankCmd) checkAffinity(rank roles.StartedRank, differences []string, restore func() error) error {
	words := "rank %d on %s is not where it should be: %s"
	if b.bindStrictly {
		words = "cannot start rank %d on %s where it should be: %s"
	}
	host, _ := hostName() // the message does not need it
	for _, difference := range differences {
		if b.bindStrictly || rank.LocalCount > 0 || rank.Rank == 0 {
			b.printMessage(words, rank.Rank, host, difference)
		}
	}
	if !b.bindStrictly || len(differences) == 0 {
		return nil
	}
	b.exitCode = health.OutcomeOfKind(health.CheckFailed).Code
	return restore()
}
