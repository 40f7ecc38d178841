package ranks

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// nodeLaunchers are programs that start the processes of one node. Without flags that name the other
// nodes, each makes a separate world.
var nodeLaunchers = []struct {
	command string   // first words of the command line; those of a Python module begin with -m
	spans   []string // flags that name other nodes
	count   string   // flag for the number of processes per node
}{
	{"torchrun", torchSpans, torchCount},
	{"-m torch.distributed.run", torchSpans, torchCount},
	{"-m torch.distributed.launch", torchSpans, torchCount},
	{"ft_launcher", torchSpans, torchCount},
	{"-m nvidia_resiliency_ext.fault_tolerance.launcher", torchSpans, torchCount},
	{"accelerate launch", accelerateSpans, accelerateCount},
	{"accelerate-launch", accelerateSpans, accelerateCount},
	{"-m accelerate.commands.launch", accelerateSpans, accelerateCount},
}

// Flags of Hugging Face's accelerate launch.
var accelerateSpans = []string{"num-machines", "machine-rank", "main-process-ip", "config-file", "same-network"}

const accelerateCount = "num-processes"

// Flags of PyTorch's torch/distributed/run.py, which accepts - and _ alike.
var torchSpans = []string{"nnodes", "node-rank", "rdzv-endpoint", "rdzv-backend", "rdzv-id", "rdzv-conf",
	"master-addr"}

const torchCount = "nproc-per-node"

// nodeLauncher is a command that starts the processes of one node alone.
type nodeLauncher struct {
	name    string // common name, such as "torchrun"
	perNode string // requested number of processes; empty if not set
	program string // command that each of its processes runs; empty if unknown
}

// findNodeLauncher reports whether a command is a launcher that starts the processes of its own node
// only. It returns false if the command has flags for several nodes.
func findNodeLauncher(argv []string) (nodeLauncher, bool) {
	argv = stripWrapper(argv)
	if len(argv) == 0 {
		return nodeLauncher{}, false
	}
	interpreter, name := "", filepath.Base(argv[0])
	words := append([]string{name}, argv[1:]...)
	if at := moduleFlag(argv); strings.HasPrefix(name, "python") && at > 0 {
		interpreter, words = name+" ", argv[at:]
	}
	for _, l := range nodeLaunchers {
		command := strings.Fields(l.command)
		if len(words) < len(command) || !slices.Equal(words[:len(command)], command) {
			continue
		}
		own, program := splitProgram(words[len(command):])
		if _, spans := flagValue(own, l.spans...); spans {
			return nodeLauncher{}, false
		}
		perNode, _ := flagValue(own, l.count)
		return nodeLauncher{interpreter + l.command, perNode, program}, true
	}
	return nodeLauncher{}, false
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

// moduleFlag returns the position of Python's flag -m; 0 if it runs a script.
func moduleFlag(argv []string) int {
	for at := 1; at < len(argv) && strings.HasPrefix(argv[at], "-"); at++ {
		switch argv[at] {
		case "-m":
			return at
		case "-X", "-W":
			at++
		}
	}
	return 0
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
func flagValue(args []string, names ...string) (value string, isSet bool) {
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
	l, is := findNodeLauncher(argv)
	if !is {
		return nil
	}
	if ranked {
		return fmt.Errorf("cannot run %s in each rank: it starts processes only on its own node, so each rank "+
			"would be a separate world; %s", l.name, l.advice())
	}
	return fmt.Errorf("cannot run %s as the driver of %d nodes: it starts processes only on the head's node, "+
		"and the other nodes would be idle; %s", l.name, nodes, l.advice())
}

// LauncherAdvice returns what to do instead of running a launcher of one node's processes, or an
// empty string if the command is not one.
func LauncherAdvice(argv []string) string {
	l, is := findNodeLauncher(argv)
	if !is {
		return ""
	}
	return l.advice()
}

func (l nodeLauncher) advice() string {
	flags := "--nnodes=$GROUP_WORLD_SIZE --node_rank=$GROUP_RANK --master_addr=$MASTER_ADDR " +
		"--master_port=$MASTER_PORT" // PyTorch accepts - in these names since 2.0 only
	if strings.Contains(l.name, "accelerate") {
		flags = "--num_machines=$GROUP_WORLD_SIZE --machine_rank=$GROUP_RANK " +
			"--main_process_ip=$MASTER_ADDR --main_process_port=$MASTER_PORT"
	}
	return fmt.Sprintf("leave it out, because ranks get the variables that it sets: bringupd "+
		"--ranks-per-node=%s -- %s; or run it once per node with its multi-node flags: bringupd "+
		"--ranks-per-node=1 -- sh -c 'exec %s %s …'; a command of sh -c is not checked",
		cmp.Or(l.perNode, "N"), cmp.Or(l.program, "…"), l.name, flags)
}
