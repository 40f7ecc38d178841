package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

type rankCmd struct {
	*invocation
	variables []string
	nodes     int // 0: not given
	resources affinity.ResourceKinds
}

// rankCommand returns the subcommand for a rank that a launcher has started. The process becomes
// the program, and no part of bringupd remains.
func (inv *invocation) rankCommand() *cli.Command {
	b := &rankCmd{invocation: inv, resources: affinity.AllKinds()}
	own := config.AssignCategory("Environment and binding",
		config.NewList("env", "NAME=VALUE", &b.variables, checkVariable,
			"environment variable of the rank; overrides all others except BRINGUPD_…; an empty value "+
				"removes it (repeatable)").WithoutVariable(),
		config.NewNumber("nnodes", &b.nodes, 1, math.MaxInt32,
			"number of nodes of a launch whose launcher does not set it (PALS)").WithoutVariable(),
		bindSetting(&b.resources, "what the rank is bound to, unless the launcher has bound it"),
	)
	own = append(own, removedSettings("rank")...)
	return inv.completeCommand(cli.Command{
		Name: "rank", Usage: "set up a process that srun or mpirun started as a rank",
		UsageText: "srun --ntasks-per-node=4 --mpi=pmix bringupd rank [flags] -- app [args]",
		Description: "The command reads the rank from the environment that srun, Open MPI's mpirun, " +
			"MPICH's mpiexec, flux run, PALS or torchrun sets " +
			"(or from RANK and WORLD_SIZE), binds the process to its part of the node (docs/binding.md), sets " +
			"BRINGUPD_RANK, RANK, LOCAL_RANK and so on (docs/ranks.md), and executes the app in its own place. " +
			"The launcher's variables are kept. It needs no daemon, and no process of bringupd remains.",
	}, own, b.becomeRank)
}

func (b *rankCmd) becomeRank([]string) error {
	if len(b.driver) == 0 {
		return usageErrorf(
			"cannot start a rank without a command: give it after --, for example: srun bringupd rank -- " +
				"./app")
	}
	environ := os.Environ()
	given := launcher.Overrides{ReadFile: readLaunchFile, Ancestors: processAncestors()}
	if b.nodes > 0 {
		given.Size = &b.nodes
	}
	rank, err := launcher.IdentifyRank(launcher.EnvironmentOf(environ), given)
	if err != nil {
		return err
	}
	by := ranks.Runners{MinNodes: max(1, rank.NodeCount), MaxNodes: max(1, rank.NodeCount), IsRanked: true,
		MinRanks: rank.RankCount, MaxRanks: rank.RankCount}
	f := ranks.JudgeCommand(b.driver, slices.Concat(environ, b.variables), by)
	if f != nil && f.IsCertain && rank.RankCount > 1 { // the only rank may start a world of its own
		return usageErrorf("%v", f)
	}
	if err := b.checkNetwork(environ, rank); err != nil || b.exitCode != 0 {
		return err
	}
	runtime.LockOSThread() // this thread is bound, and becomes the app
	defer runtime.UnlockOSThread()
	place, restore, err := b.bindThread(rank)
	if err != nil || b.exitCode != 0 {
		return err
	}
	err = process.ReplaceSelf(b.driver, ranks.PassThroughEnviron(environ, rank, place, b.variables))
	return errors.Join(fmt.Errorf("cannot start rank %d: %w", rank.Rank, err), restore())
}

// checkNetwork returns an error for variables by which the ranks do not reach each other. Of the ranks
// of a node only the first one reports it; the others have the same exit code.
func (b *rankCmd) checkNetwork(environ []string, rank launcher.StartedRank) error {
	own := ranks.PassThroughEnviron(environ, rank, affinity.Affinity{}, b.variables)
	mistakes, err := rank.FindNetworkMistakes(launcher.EnvironmentOf(own), fitness.MayHaveGPUs(-1, environ))
	if len(mistakes) == 0 {
		return err
	}
	if rank.LocalRank > 0 {
		b.exitCode = codeOf(health.Usage)
		return nil
	}
	return config.NodeUsageErrorf("cannot start rank %d: %s", rank.Rank, strings.Join(mistakes, "; "))
}

// bindThread sets the affinity of the calling thread for the rank, or sets the exit code with which
// the process ends instead.
func (b *rankCmd) bindThread(rank launcher.StartedRank) (place affinity.Affinity, restore func() error, err error) {
	if b.resources == (affinity.ResourceKinds{}) {
		return place, func() error { return nil }, nil
	}
	gpus, seen := gpu.QuickTopology("/")
	if !seen {
		if _, err = b.runAbandonable(func(ctx context.Context) (err error) {
			gpus, err = gpu.Child{}.ProbeTopology(ctx)
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
func (b *rankCmd) checkAffinity(rank launcher.StartedRank, differences []string, restore func() error) error {
	format := "rank %d on %s is not bound as planned: %s"
	if b.resources.IsStrict {
		format = "cannot bind rank %d on %s as planned: %s"
	}
	host := launcher.NodeName(os.LookupEnv)
	if host == "" {
		host, _ = os.Hostname() // the message does not need it
	}
	for _, difference := range differences {
		if b.resources.IsStrict || rank.LocalCount > 0 || rank.Rank == 0 {
			b.printMessage(format, rank.Rank, host, difference)
		}
	}
	if !b.resources.IsStrict || len(differences) == 0 {
		return nil
	}
	b.exitCode = codeOf(health.CheckFailed)
	return restore()
}
