package launcher

import (
	"maps"
	"slices"
)

var torchVariables = rankVariables{
	rank: []string{"RANK"}, rankCount: []string{"WORLD_SIZE"}, localRank: []string{"LOCAL_RANK"}, localCount: []string{"LOCAL_WORLD_SIZE"},
	nodeIndex: []string{"GROUP_RANK", "NODE_RANK"}, nodeCount: []string{"GROUP_WORLD_SIZE"},
}

// torchrunStarter is torch's torchrun, and launchers that start processes in the same way.
var torchrunStarter = rankStarter{
	displayName: "torchrun", markVariable: "TORCHELASTIC_RUN_ID", variableNames: torchVariables,
	origin: starterOrigin{programs: []string{
		"torchrun", "torch.distributed.run", "torch.distributed.launch", "torch_distributed_launch", "accelerate", "ft_launcher",
		"nvidia_resiliency_ext.fault_tolerance.launcher",
	}, outerProgram: pythonPrefix},
	privatePrefixes: []string{"TORCHELASTIC_", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"},
}

// LocalAliases returns variables of MPI launchers with the local rank of a process and the number of
// processes on its node, from which scripts select a GPU. None of them is one by which a launcher is
// recognised.
func LocalAliases(rank, count string) map[string]string {
	return map[string]string{
		"OMPI_COMM_WORLD_LOCAL_RANK": rank, "OMPI_COMM_WORLD_LOCAL_SIZE": count,
		"MV2_COMM_WORLD_LOCAL_RANK": rank, "MV2_COMM_WORLD_LOCAL_SIZE": count, "PALS_LOCAL_RANKID": rank,
	}
}

// worldStarter are the ranks of a bringupd world, which also have torchrun's variables.
var worldStarter = rankStarter{
	displayName: "bringupd", markVariable: "BRINGUPD_RANK",
	variableNames: rankVariables{
		rank: []string{"BRINGUPD_RANK"}, rankCount: []string{"BRINGUPD_RANKS"},
		localRank: []string{"BRINGUPD_LOCAL_RANK"}, localCount: []string{"BRINGUPD_LOCAL_RANKS"}, nodeIndex: []string{"GROUP_RANK"}, nodeCount: []string{"GROUP_WORLD_SIZE"},
	},
	servesPMI: true, origin: starterOrigin{programs: []string{"bringupd"}},
	privatePrefixes: slices.Concat([]string{"JAX_COORDINATOR_ADDRESS", "RRUN_", "MPI_LOCAL"}, torchrunStarter.privatePrefixes, slices.Collect(maps.Keys(LocalAliases("", "")))),
}

// plainStarter is any launcher that sets RANK and WORLD_SIZE. It comes last, because under Slurm
// they may be left over from a batch script.
var plainStarter = rankStarter{
	displayName: "a launcher that sets RANK and WORLD_SIZE", markVariable: "RANK and WORLD_SIZE", variableNames: torchVariables,
	customCheck: func(env Environment) bool { return env.valueOf("RANK") != "" && env.valueOf("WORLD_SIZE") != "" },
}
