package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/setting"
)

// becoming is one execution of bringupd rank.
type becoming struct {
	*invocation
	env           []string
	kinds         binding.Kinds
	strict        bool
	allowLauncher bool
	library       string
}

// rankCommand returns the subcommand for a rank that a launcher has started. The process becomes
// the program, and no part of bringupd remains.
func (inv *invocation) rankCommand() *cli.Command {
	b := &becoming{invocation: inv, kinds: binding.All()}
	own := setting.Under("What the rank is told, and has",
		variables("env", &b.env, "variable of the rank, which wins over all others but BRINGUPD_…; an empty value takes it away; may be repeated").Not(setting.ByVariable),
		kinds(&b.kinds, "what the rank is bound to, where the launcher has not bound it"),
		setting.Yes("allow-launcher", &b.allowLauncher, "let the app be torchrun or another program that starts processes on its own node alone"),
		setting.Yes("bind-strict", &b.strict, "let the rank fail, with 75, where it is not where it should be"),
		nvml(&b.library),
	)
	return inv.command(cli.Command{
		Name: "rank", Usage: "become a rank that srun, mpirun or another launcher has started",
		UsageText: "srun --ntasks-per-node=4 --mpi=pmix bringupd rank [flags] -- app [args]",
		Description: "It finds out which rank this is from what srun, Open MPI's mpirun, MPICH's mpiexec, flux run, PALS, jsrun or torchrun tells each " +
			"of its processes, or from RANK and WORLD_SIZE, binds it to its share of the node (docs/binding.md), and becomes the app with that told in its environment: " +
			"BRINGUPD_RANK, RANK, LOCAL_RANK and so on (docs/ranks.md). " +
			"The launcher's own variables stay as they are, and those of launches around it are taken away. No daemon takes part, and no process of bringupd stays.",
	}, own, b.become)
}

func (b *becoming) become([]string) error {
	if len(b.driver) == 0 {
		return usage("cannot become a rank of nothing: give the command behind --, as in: srun bringupd rank -- ./app")
	}
	environ := os.Environ()
	rank, err := roles.StartedAs(roles.EnvironmentOf(environ), ancestry)
	if err != nil {
		return err
	}
	if rank.Ranks > 1 && !b.allowLauncher {
		if err := ranks.CheckCommand(b.driver, rank.Nodes, true); err != nil {
			return usage("%v", err)
		}
	}
	runtime.LockOSThread() // this thread is bound, and becomes the app
	defer runtime.UnlockOSThread()
	place, restore, err := b.bind(rank)
	if err != nil || b.code != 0 {
		return err
	}
	err = process.Exec(b.driver, ranks.PassedOn(environ, rank, place, b.env))
	return errors.Join(fmt.Errorf("cannot start rank %d: %w", rank.Rank, err), restore())
}

// bind sets the affinity of the calling thread for the rank, or sets the exit code with which the
// process ends instead.
func (b *becoming) bind(rank roles.StartedRank) (place binding.Place, restore func() error, err error) {
	if b.kinds == (binding.Kinds{}) {
		return place, func() error { return nil }, nil
	}
	gpus, seen := gpu.Glance("/")
	if !seen || b.library != "" {
		if _, err = b.leaving(nil, func(ctx context.Context) (err error) {
			gpus, _, err = gpu.Child{Library: b.library}.Locate(ctx)
			return err
		}); err != nil || b.code != 0 {
			return place, nil, err
		}
	}
	place, restore, differences, err := ranks.Take(rank, gpus, b.kinds)
	if err != nil {
		return place, nil, err
	}
	return place, restore, b.judge(rank, differences, restore)
}

// judge reports differences of the affinity. If no rank can be bound, only the first one reports
// it.
func (b *becoming) judge(rank roles.StartedRank, differences []string, restore func() error) error {
	words := "rank %d on %s is not where it should be: %s"
	if b.strict {
		words = "cannot start rank %d on %s where it should be: %s"
	}
	host, _ := hostName() // the message does not need it
	for _, difference := range differences {
		if b.strict || rank.Locals > 0 || rank.Rank == 0 {
			b.say(words, rank.Rank, host, difference)
		}
	}
	if !b.strict || len(differences) == 0 {
		return nil
	}
	b.code = health.OutcomeOf(health.Check).Code
	return restore()
}
