package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/roles"
)

// rankCommand is a rank that a launcher has started: it becomes the program, and
// nothing of bringupd stays.
func (inv *invocation) rankCommand() *cli.Command {
	var env []string
	own := settings{
		variables("env", &env, "variable of the rank, which wins over all others but BRINGUPD_…; an empty value takes it away; may be repeated").not(byVariable),
	}
	return inv.command(cli.Command{
		Name: "rank", Usage: "become a rank that srun, mpirun or another launcher has started",
		UsageText: "srun --ntasks-per-node=4 --mpi=pmix bringupd rank [flags] -- app [args]",
		Description: "It finds out which rank this is from what srun, Open MPI's mpirun, MPICH's mpiexec, flux run, PALS, jsrun or torchrun tells each " +
			"of its processes, or from RANK and WORLD_SIZE, and becomes the app with that told in its environment: BRINGUPD_RANK, RANK, LOCAL_RANK and so on (docs/ranks.md). " +
			"The launcher's own variables stay as they are. No daemon takes part, and no process of bringupd stays.",
	}, under("What the rank is told", own...), func([]string) error {
		if len(inv.driver) == 0 {
			return usage("cannot become a rank of nothing: give the command behind --, as in: srun bringupd rank -- ./app")
		}
		environ := os.Environ()
		rank, err := roles.StartedAs(roles.EnvironmentOf(environ))
		if err != nil {
			return err
		}
		err = process.Exec(inv.driver, ranks.PassedOn(environ, rank, ranks.Told(env)))
		return fmt.Errorf("cannot start rank %d: %w", rank.Rank, err)
	})
}
