package roles

var torchNames = rankNames{
	rank: []string{"RANK"}, ranks: []string{"WORLD_SIZE"}, local: []string{"LOCAL_RANK"}, locals: []string{"LOCAL_WORLD_SIZE"},
	node: []string{"GROUP_RANK", "NODE_RANK"}, nodes: []string{"GROUP_WORLD_SIZE"},
}

// torchrun is torch's torchrun, and launchers that start processes in the same way.
var torchrun = starter{
	title: "torchrun", mark: "TORCHELASTIC_RUN_ID", names: torchNames,
	origin: origin{programs: []string{
		"torchrun", "torch.distributed.run", "torch.distributed.launch", "torch_distributed_launch", "accelerate", "ft_launcher",
		"nvidia_resiliency_ext.fault_tolerance.launcher",
	}, within: python},
	private: []string{"TORCHELASTIC_", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"},
}

// ownRanks are the ranks of a bringupd world, which also have torchrun's variables.
var ownRanks = starter{
	title: "bringupd", mark: "BRINGUPD_RANK",
	names: rankNames{
		rank: []string{"BRINGUPD_RANK"}, ranks: []string{"BRINGUPD_RANKS"},
		local: []string{"BRINGUPD_LOCAL_RANK"}, locals: []string{"BRINGUPD_LOCAL_RANKS"}, node: []string{"GROUP_RANK"}, nodes: []string{"GROUP_WORLD_SIZE"},
	},
	servesPMI: true, origin: origin{programs: []string{"bringupd"}},
	private: append([]string{"JAX_COORDINATOR_ADDRESS", "RRUN_"}, torchrun.private...),
}

// plainTasks is any launcher that sets RANK and WORLD_SIZE. It comes last, because under Slurm they
// may be left over from a batch script.
var plainTasks = starter{
	title: "a launcher that sets RANK and WORLD_SIZE", mark: "RANK and WORLD_SIZE", names: torchNames,
	started: func(env Environment) bool { return env.get("RANK") != "" && env.get("WORLD_SIZE") != "" },
}
