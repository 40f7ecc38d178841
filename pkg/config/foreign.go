package config

import (
	"slices"
	"strings"
)

// foreignFlags are flags of other programs, with the owner and the replacement.
var foreignFlags = []struct{ names, hint string }{
	{"np n nprocs", "mpirun's; give --ranks=N, and the program after -- without mpirun"},
	{"num-processes", "accelerate's; give --ranks=N, and the program after -- without accelerate"},
	{"npersocket", "mpirun's; give --ranks-per-node=numa, and the program after -- without mpirun"},
	{"ppn npernode", "mpirun's; give --ranks-per-node=N, and the program after -- without mpirun"},
	{"host hosts hostfile machinefile",
		"mpirun's; start bringupd by srun, or without a batch system by bringupd hosts"},
	{"map-by rank-by", "mpirun's; give --ranks-per-node: ranks are numbered node by node"},
	{"bind-to", "mpirun's; give --bind"},
	{"mca", "mpirun's; export OMPI_MCA_NAME=VALUE before bringupd starts, or give --env=OMPI_MCA_NAME=VALUE"},
	{"tag-output", "mpirun's; give --tag"},
	{"x genv", "mpirun's; give --env=NAME=VALUE"},
	{"nproc-per-node", "torchrun's; give --ranks-per-node=N, and the program after -- without torchrun"},
	{"m module no-python", "torchrun's; give the command after --, as in: -- python -m MODULE"},
	{"redirects tee", "torchrun's; each rank has a log, and --output selects what is shown"},
	{"max-restarts", "torchrun's; give --restarts=N"},
	{"node-rank master-addr master-port rdzv-backend rdzv-endpoint rdzv-id standalone",
		"torchrun's; omit it: each rank gets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"},
	{"ntasks", "srun's; give --ranks=N"},
	{"ntasks-per-node tasks-per-node", "srun's; give it there as 1, and --ranks-per-node=N for ranks"},
	{"N nodes num-nodes", "that of other launchers; give the number of nodes as srun --nodes=N, or as " +
		"bringupd local --nodes=N on this machine"},
	{"c gpus gres time nodelist cpus-per-task gpus-per-task mem partition account exclusive job-name",
		"srun's or sbatch's; give it there: --gpus-per-node=N requires GPUs, and --deadline=TIME limits the job"},
	{"requeue", "sbatch's; give --on-failure=requeue"},
	{"num-gpus num-cpus resources", "ray start's; give --ray-head-args=FLAG and --ray-worker-args=FLAG, or " +
		"for ranks --ranks-per-node=N"},
	{"nworkers nthreads memory-limit", "dask worker's; give --dask-worker-args=FLAG, as in " +
		"--dask-worker-args=--nworkers=2"},
	{"timeout walltime", "unknown; give --deadline=TIME to limit the job, or one of the timeouts in " +
		"bringupd help run"},
	{"v debug", "unknown; give --verbose"},
}

// ForeignFlagHint returns the owner of a flag of another program and what to give instead, or an
// empty string if nothing is known about the flag.
func ForeignFlagHint(name string) string {
	name = strings.ReplaceAll(name, "_", "-")
	for _, foreign := range foreignFlags {
		if slices.Contains(strings.Fields(foreign.names), name) {
			return foreign.hint
		}
	}
	return ""
}
