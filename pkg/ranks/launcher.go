package ranks

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// nodeLaunchers are programs that start the processes of one node, by the names of their commands
// and Python modules. Without flags that name the other nodes, each makes a separate world.
var nodeLaunchers = []struct {
	command string   // first word of the command line
	module  string   // module of an equivalent python -m MODULE; empty if there is none
	verb    string   // second word of the command line; empty for any
	needs   []string // flags of which one is required to make it a launcher; empty if it always is one
	spans   []string // flags that name other nodes
	count   []string // flags for the number of processes per node
}{
	{
		command: "torchrun", module: "torch.distributed.run", spans: torchSpans, count: torchCounts,
	}, {
		command: "torch_distributed_launch", module: "torch.distributed.launch", spans: torchSpans, count: torchCounts,
	}, {
		command: "ft_launcher", module: "nvidia_resiliency_ext.fault_tolerance.launcher", spans: torchSpans,
		count: torchCounts,
	}, {
		command: "accelerate", module: "accelerate.commands.accelerate_cli", verb: "launch",
		spans: accelerateSpans, count: accelerateCounts,
	}, {
		command: "accelerate-launch", module: "accelerate.commands.launch",
		spans: accelerateSpans, count: accelerateCounts,
	}, {
		command: "rrun", needs: []string{"n", "nranks"}, spans: []string{"slurm"}, count: []string{"n", "nranks"},
	},
}

// Flags of Hugging Face's accelerate launch.
var (
	accelerateSpans  = []string{"num-machines", "machine-rank", "main-process-ip", "config-file", "same-network"}
	accelerateCounts = []string{"num-processes"}
)

// Flags of PyTorch's torch/distributed/run.py, which accepts - and _ alike.
var (
	torchSpans = []string{"nnodes", "node-rank", "rdzv-endpoint", "rdzv-backend", "rdzv-id", "rdzv-conf",
		"master-addr"}
	torchCounts = []string{"nproc-per-node"}
)

// NodeLauncher is a command that starts the processes of one node alone.
type NodeLauncher struct {
	Name    string // common name, such as "torchrun"
	PerNode string // requested number of processes; empty if not set
	Program string // command that each of its processes runs; empty if unknown
}

// FindNodeLauncher reports whether a command is a launcher that starts the processes of its own
// node only. It returns false if the command has flags for several nodes.
func FindNodeLauncher(argv []string) (NodeLauncher, bool) {
	argv = stripWrapper(argv)
	if len(argv) == 0 {
		return NodeLauncher{}, false
	}
	name, args := filepath.Base(argv[0]), argv[1:]
	module, moduleArgs := pythonModule(argv)
	for _, l := range nodeLaunchers {
		// Compare the command, or the Python module, and the second word.
		found := NodeLauncher{Name: name}
		switch {
		case module != "" && module == l.module:
			found.Name, args = name+" -m "+module, moduleArgs
		case name != l.command:
			continue
		}
		if l.verb != "" {
			if len(args) == 0 || args[0] != l.verb {
				continue
			}
			found.Name, args = found.Name+" "+l.verb, args[1:]
		}
		// The command is this launcher. Inspect its flags.
		own, program := splitProgram(args)
		if _, isSet := flagValue(own, l.spans); isSet {
			return NodeLauncher{}, false
		}
		found.Program = program
		if found.PerNode, _ = flagValue(own, l.count); found.PerNode == "" && len(l.needs) > 0 {
			continue
		}
		return found, true
	}
	return NodeLauncher{}, false
}

// stripWrapper returns a command without a preceding env or uv run.
func stripWrapper(argv []string) []string {
	switch {
	case len(argv) > 0 && filepath.Base(argv[0]) == "env":
		at := 1
		for at < len(argv) && (strings.HasPrefix(argv[at], "-") || strings.Contains(argv[at], "=")) {
			at++
		}
		return argv[at:]
	case len(argv) > 2 && filepath.Base(argv[0]) == "uv" && argv[1] == "run" && !strings.HasPrefix(argv[2], "-"):
		return argv[2:]
	}
	return argv
}

func pythonModule(argv []string) (module string, args []string) {
	if !strings.HasPrefix(filepath.Base(argv[0]), "python") {
		return "", nil
	}
	for at := 1; at+1 < len(argv) && strings.HasPrefix(argv[at], "-"); at++ {
		switch argv[at] {
		case "-m":
			return argv[at+1], argv[at+2:]
		case "-X", "-W":
			at++
		}
	}
	return "", nil
}

// splitProgram splits the arguments of a launcher before its program. The program begins at a
// Python script, at a module flag, or at the first argument that is neither a flag nor the value of
// one. splitProgram returns the program's command in the first two cases only.
func splitProgram(args []string) (own []string, program string) {
	for at, arg := range args {
		switch {
		case strings.HasSuffix(arg, ".py") && !strings.HasPrefix(arg, "-"):
			return args[:at], "python " + strings.Join(args[at:], " ")
		case arg == "-m" || arg == "--module":
			return args[:at], "python -m " + strings.Join(args[at+1:], " ")
		case !strings.HasPrefix(arg, "-") && (at == 0 || !strings.HasPrefix(args[at-1], "-") ||
			strings.Contains(args[at-1], "=")):
			return args[:at], ""
		}
	}
	return args, ""
}

// flagValue returns the value of the first argument that is one of the flags in names. The value
// follows after = or as the next argument. A node count of 1 or 1:1 is ignored, as if the flag were
// absent.
func flagValue(args, names []string) (value string, isSet bool) {
	for at, arg := range args {
		name, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		name = strings.ReplaceAll(name, "_", "-")
		if !strings.HasPrefix(arg, "-") || !slices.Contains(names, name) {
			continue
		}
		if !joined && at+1 < len(args) && !strings.HasPrefix(args[at+1], "-") {
			value = args[at+1]
		}
		if counts := name == "nnodes" || name == "num-machines"; counts && (value == "1" || value == "1:1") {
			continue
		}
		return value, true
	}
	return "", false
}

// CheckCommand returns an error if a command would create several worlds, or leave nodes without
// work: it is a launcher of one node's processes, and runs on several nodes or in several ranks. If
// ranked is set, every rank runs the command; otherwise the head of these nodes does.
func CheckCommand(argv []string, nodes int, ranked bool) error {
	l, is := FindNodeLauncher(argv)
	if !is {
		return nil
	}
	program, perNode := l.Program, l.PerNode
	if program == "" {
		program = "…"
	}
	if perNode == "" {
		perNode = "N"
	}
	// Suggest corrections.
	fix := fmt.Sprintf("leave it out, because ranks get the variables that it sets: bringupd "+
		"--ranks-per-node=%s -- %s", perNode, program)
	if l.Name != "rrun" {
		fix += "; or run it once per node with its multi-node flags: bringupd --ranks-per-node=1 -- sh -c " +
			`'exec ` + l.Name + spanningFlags(l.Name) + ` …'`
	}
	fix += "; or give --allow-launcher to run it unchanged"
	if ranked {
		return fmt.Errorf("cannot run %s in each rank: it starts processes only on its own node, so each rank "+
			"would be a separate world; %s", l.Name, fix)
	}
	return fmt.Errorf("cannot run %s as the driver of %d nodes: it starts processes only on the head's node, "+
		"and the other nodes would be idle; %s", l.Name, nodes, fix)
}

func spanningFlags(name string) string {
	if strings.Contains(name, "accelerate") {
		return " --num_machines=$GROUP_WORLD_SIZE --machine_rank=$GROUP_RANK " +
			"--main_process_ip=$MASTER_ADDR --main_process_port=$MASTER_PORT"
	}
	// PyTorch accepts - in these names since 2.0 only.
	return ` --nnodes=$GROUP_WORLD_SIZE --node_rank=$GROUP_RANK --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT`
}
