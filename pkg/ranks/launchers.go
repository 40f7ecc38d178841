package ranks

import "slices"

// knownLauncher is what is known of a program that starts the processes of a world itself. Names of
// flags are without leading dashes, with - for _, and with =VALUE if only that counts; names in
// capitals are those of variables.
type knownLauncher struct {
	// commands are the first words of its command lines. Those of a Python module begin with -m.
	commands []string
	script   string // text at the beginning of its script, if others have its name; otherwise empty
	spanNames
	reachNames
	programNames
	// rank is the command by which ranks run the same, with %s for the program; empty if there is none.
	rank  string
	isMPI bool // its ranks are those of an MPI
	// framework is the value of --framework with which the driver needs no launcher; empty if it is one
	// of ranks.
	framework string
}

// spanNames have the nodes of a world of a launcher.
type spanNames struct {
	// nodes have the number of nodes, N or MIN:MAX; otherwise it is 1. total have the number of all
	// processes, perNode that of a node.
	nodes, total, perNode []string
	// files have a file that may name the nodes. If hasDefault, there may be one without them.
	files      []string
	hasDefault bool
	findsNodes bool // bringupd gives it the nodes
	// own have the number of its own node, which is 0 without them, unless meets are set.
	own, meets []string
}

// reachNames decide whether one process of a launcher starts processes on the other nodes.
type reachNames struct {
	// It starts processes on its own node only, so that each node must run one, unless it reaches. One
	// that reaches does not with one of local. With one of remote, another may.
	reaches       bool
	local, remote []string
	hosts         []string // values are the nodes on which it starts processes
	separator     string
}

// programNames separate the program of a launcher from its own flags.
type programNames struct {
	switches  []string // flags without a value
	noProgram bool     // its arguments have no program, or it is the last of them
	// It runs the program itself, as one process: with one of alone, or as a rank without any of unless,
	// or always if it joins, which those of all ranks do, however many.
	alone, unless []string
	joins         bool
	needsScript   bool // other programs have this name, which run no Python script
}

// knownLaunchers are all of them. If several match, the first one counts. Their parsers are
// torch/distributed/run.py (with argparse_util.py), accelerate/commands/launch.py,
// deepspeed/launcher/runner.py, composer/cli/launcher.py, colossalai/cli/launcher,
// lightning_fabric/cli.py, torchtune/_cli/run.py, torchx/components/dist.py, axolotl/cli/main.py,
// llamafactory/launcher.py and horovod/runner/launch.py.
var knownLaunchers = []knownLauncher{
	{
		commands:  []string{"torchrun", "-m torch.distributed.run", "-m torch.distributed.launch"},
		spanNames: torchSpan, programNames: programNames{switches: torchSwitches},
		rank: "python %s",
	},
	{
		commands: []string{"ft_launcher", "-m nvidia_resiliency_ext.fault_tolerance.launcher"},
		spanNames: spanNames{
			nodes: torchSpan.nodes, perNode: torchSpan.perNode, // it meets by default
		},
		programNames: programNames{switches: torchSwitches}, rank: "python %s",
	},
	{
		commands: []string{"accelerate launch", "accelerate-launch", "-m accelerate.commands.launch"},
		spanNames: spanNames{
			nodes: []string{"num-machines"}, total: []string{"num-processes"},
			files: []string{"config-file", "deepspeed-hostfile", "mpirun-hostfile"},
			own:   []string{"machine-rank"}, meets: []string{"rdzv-backend"},
		},
		reachNames: reachNames{remote: []string{"use-deepspeed"}},
		programNames: programNames{switches: []string{
			"q", "quiet", "cpu", "multi-gpu", "tpu", "use-deepspeed", "use-fsdp", "use-parallelism-config",
			"use-megatron-lm", "same-network", "m", "module", "no-python", "debug", "enable-cpu-affinity",
			"dynamo-use-fullgraph", "dynamo-use-dynamic",
		}},
		rank: "python %s",
	},
	{
		commands: []string{"deepspeed", "deepspeed.pt", "-m deepspeed.launcher.runner"},
		spanNames: spanNames{
			nodes: []string{"num-nodes"}, perNode: []string{"num-gpus", "num-accelerators"},
			files: []string{"hostfile", "H"}, hasDefault: true,
		},
		reachNames: reachNames{
			reaches: true, local: []string{"no-ssh"}, hosts: []string{"include", "i"}, separator: "@",
		},
		programNames: programNames{switches: []string{
			"module", "no-python", "no-local-rank", "no-ssh", "no-ssh-check", "force-multi", "save-pid",
			"bind-cores-to-rank", "q", "quiet",
		}},
		rank: "python %s",
	},
	{
		commands: []string{"composer", "-m composer.cli.launcher"}, script: "composer.cli",
		spanNames: spanNames{
			total: []string{"world-size"}, perNode: []string{"n", "nproc"},
			own: []string{"node-rank", "base-rank", "NODE_RANK", "BASE_RANK"},
		},
		programNames: programNames{
			switches:    []string{"v", "verbose", "m", "module-mode", "c", "command-mode"},
			needsScript: true,
		},
		rank: "sh -c 'NODE_RANK=$GROUP_RANK exec python %s'",
	},
	{
		commands:     []string{"colossalai run"},
		spanNames:    spanNames{perNode: []string{"nproc-per-node"}, files: []string{"hostfile"}},
		reachNames:   reachNames{reaches: true, hosts: []string{"H", "host"}, separator: ","},
		programNames: programNames{switches: []string{"m"}},
		rank:         "python %s",
	},
	{
		commands: []string{"fabric run model", "fabric run", "lightning run model"}, script: "lightning",
		spanNames: spanNames{
			nodes: []string{"num-nodes"}, perNode: []string{"devices"}, own: []string{"node-rank"},
		},
		rank: "python %s",
	},
	{
		commands: []string{"tune run"}, script: "torchtune", spanNames: torchSpan,
		programNames: programNames{
			switches: torchSwitches,
			unless:   slices.Concat(torchSpan.nodes, torchSpan.perNode, torchSwitches, []string{"rdzv-endpoint"}),
		},
		rank: "tune run %s",
	},
	{
		commands:     []string{"torchx run"},
		spanNames:    spanNames{files: []string{"s", "scheduler", "cfg"}, hasDefault: true},
		programNames: programNames{noProgram: true},
	},
	{
		commands: []string{"axolotl train", "axolotl evaluate"},
		spanNames: spanNames{
			nodes: slices.Concat(torchSpan.nodes, []string{"num-machines"}), perNode: torchSpan.perNode,
			files: []string{"config-file", "cloud"}, meets: []string{"rdzv-endpoint", "rdzv-backend"},
			own: slices.Concat(torchSpan.own, []string{"machine-rank"}),
		},
		programNames: programNames{noProgram: true, alone: []string{"launcher=python"}},
		rank:         "axolotl train --launcher=python …",
	},
	{
		commands: []string{"llamafactory-cli train", "lmf train"},
		spanNames: spanNames{
			nodes: []string{"NNODES"}, perNode: []string{"NPROC_PER_NODE"}, files: []string{"MAX_NNODES"},
			own: []string{"NODE_RANK"}, meets: []string{"RDZV_ID"},
		},
		programNames: programNames{unless: []string{"FORCE_TORCHRUN"}},
		rank:         "llamafactory-cli train %s",
	},
	{
		commands: []string{"horovodrun"},
		spanNames: spanNames{
			total: []string{"np", "num-proc"}, files: []string{"hostfile", "host-discovery-script"},
			hasDefault: true,
		},
		reachNames: reachNames{reaches: true, hosts: []string{"H", "hosts"}, separator: ","},
		programNames: programNames{switches: []string{
			"verbose", "disable-cache", "gloo", "mpi", "jsrun", "tcp",
		}},
		rank: "%s", isMPI: true,
	},
	{
		commands:     []string{"ray symmetric-run"},
		programNames: programNames{joins: true}, rank: "%s", framework: "ray",
	},
	{
		commands:  []string{"mpirun", "mpiexec", "orterun", "prterun"},
		spanNames: spanNames{findsNodes: true}, reachNames: reachNames{reaches: true},
		programNames: programNames{noProgram: true}, isMPI: true,
	},
}

// torchSpan has PyTorch's flags, and the variables that replace them.
var torchSpan = spanNames{
	nodes: []string{"nnodes", "PET_NNODES"}, perNode: []string{"nproc-per-node", "PET_NPROC_PER_NODE"},
	own:   []string{"node-rank", "PET_NODE_RANK"},
	meets: []string{"rdzv-backend", "PET_RDZV_BACKEND"},
}

var torchSwitches = []string{"standalone", "m", "module", "no-python", "run-path"}

// remoteStarters are the first words of commands that start processes on other nodes. Beside one,
// nothing is known of a launcher, because those nodes may run it, too.
var remoteStarters = []string{
	"ssh", "pdsh", "clush", "parallel-ssh", "srun", "blaunch", "pbsdsh", "pbs_tmrsh", "flux run",
	"flux submit", "bringupd exec", "bringupd rsh", "kubectl exec",
}
