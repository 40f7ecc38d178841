package roles

var torchNames = rankNames{
	rank: []string{"RANK"}, ranks: []string{"WORLD_SIZE"}, local: []string{"LOCAL_RANK"}, locals: []string{"LOCAL_WORLD_SIZE"},
	node: []string{"GROUP_RANK", "NODE_RANK"}, nodes: []string{"GROUP_WORLD_SIZE"},
}

// torchrun is that of torch, and a world of bringupd's own, which tells its ranks the
// same.
var torchrun = starter{
	title: "torchrun", mark: "TORCHELASTIC_RUN_ID", names: torchNames,
	private: []string{"TORCHELASTIC_", "NODE_RANK"},
}

// plainTasks is any launcher that sets RANK and WORLD_SIZE. Under Slurm they may be left
// from a batch script, so that it comes last.
var plainTasks = starter{
	title: "a launcher that sets RANK and WORLD_SIZE", mark: "RANK and WORLD_SIZE", names: torchNames,
	started: func(env Environment) bool { return env.get("RANK") != "" && env.get("WORLD_SIZE") != "" },
}
