package launcher

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Shortfall is a resource of a Slurm job that a step does not have, which may be a mistake.
type Shortfall struct {
	Problem string // the resources of the step and of the job
	Fix     string // the flag that gives the step all of them
}

// FindShortfalls returns the resources that the step of an environment lacks. cpus is how many CPUs
// the task may use, and nodeCPUs how many its node has, or 0 if they are unknown. It returns nil
// outside of a step. Shortfalls that concern all nodes are reported only on the first node.
func FindShortfalls(env Environment, cpus, nodeCPUs int) (found []Shortfall) {
	if !inSlurmStep(env) {
		return nil
	}
	if lack, is := findHetShortfall(env); is && env.valueOf("SLURM_NODEID") == "0" {
		found = append(found, lack)
	}
	// A step without GPUs has an empty list, or none.
	if job := env.valueOf("SLURM_JOB_GPUS"); job != "" && env.valueOf("SLURM_STEP_GPUS") == "" {
		flag := "--gpus-per-node=N"
		if ids, err := ExpandNodeList("["+job+"]", 0); err == nil {
			flag = "--gpus-per-node=" + strconv.Itoa(len(ids))
		}
		found = append(found, Shortfall{
			fmt.Sprintf("the job has the GPUs %s here, but this step has none", shortenText(job)),
			"add " + flag + " to srun",
		})
	}
	// Half of a node's CPUs may be one thread of each core, by --hint=nomultithread.
	asked := env.valueOf("SLURM_CPUS_PER_TASK") + env.valueOf("SLURM_CPUS_PER_GPU")
	if asked == "" && cpus > 0 && 2*cpus < nodeCPUs {
		found = append(found, Shortfall{
			fmt.Sprintf("this task may use %d of the node's %d CPUs, and no number was requested",
				cpus, nodeCPUs),
			"add --cpus-per-task=N to srun and sbatch, or --exclusive for all",
		})
	}
	return found
}

// findHetShortfall reports whether a step has only some components of a heterogeneous job.
func findHetShortfall(env Environment) (lack Shortfall, is bool) {
	step, _ := strconv.Atoi(env.valueOf("SLURM_STEP_NUM_NODES"))
	nodes := 0
	var groups []string
	for component := range slurmComponentCount(env) {
		n, _ := strconv.Atoi(env.valueOf(fmt.Sprint("SLURM_JOB_NUM_NODES_HET_GROUP_", component)))
		nodes, groups = nodes+n, append(groups, strconv.Itoa(component))
	}
	if step == 0 || nodes <= step {
		return lack, false // an srun of all components does not provide their sizes
	}
	return Shortfall{
		fmt.Sprintf("the job has %d nodes in %d components, but this step has %d of them",
			nodes, len(groups), step),
		"add --het-group=" + strings.Join(groups, ",") + " to srun",
	}, true
}

// StarterProcess is a process that starts the daemons of a job, as the node shows it.
type StarterProcess struct {
	Argv, Environ []string
}

// FindNodeLossShortfall returns the options that an srun of this job lacks if its step must go on
// after the loss of a node. running are processes of this node; none of them may be an srun, because
// it may run elsewhere. Slurm gives neither a task nor scontrol these options, nor --no-kill of
// sbatch and salloc.
func FindNodeLossShortfall(env Environment, running []StarterProcess) (lack Shortfall, is bool) {
	for _, p := range running {
		if !inSlurmStep(env) || !p.isSrunOf(env.valueOf("SLURM_JOB_ID")) {
			continue
		}
		var has []string
		toleratesLoss, endsWithTask := p.lossOptions()
		if endsWithTask != "" {
			has = append(has, endsWithTask)
		}
		if !toleratesLoss {
			has = append(has, "no --no-kill")
		}
		if len(has) > 0 {
			return Shortfall{
				"Slurm will end this step with a lost node, without which the roles could go on: " +
					"srun has " + strings.Join(has, " and "),
				"give srun --no-kill --kill-on-bad-exit=0, and sbatch or salloc --no-kill",
			}, true
		}
	}
	return lack, false
}

// isSrunOf reports whether the process is an srun in the environment of a job.
func (p StarterProcess) isSrunOf(job string) bool {
	return len(p.Argv) > 0 && filepath.Base(p.Argv[0]) == "srun" &&
		EnvironmentOf(p.Environ).valueOf("SLURM_JOB_ID") == job
}

// lossOptions reports whether srun has --no-kill, and returns the option or the variable that makes
// it end the step with the first task that fails; without either, the site's KillOnBadExit decides,
// whose default is 0. The options are before the command, as far as it can be recognised.
func (p StarterProcess) lossOptions() (toleratesLoss bool, endsWithTask string) {
	env := EnvironmentOf(p.Environ)
	isOff := func(text string) bool { return strings.EqualFold(text, "off") || strings.EqualFold(text, "no") }
	noKill, isSet := env("SLURM_NO_KILL")
	toleratesLoss = isSet && !isOff(noKill)
	if value := env.valueOf("SLURM_KILL_BAD_EXIT"); value != "" && value != "0" {
		endsWithTask = "SLURM_KILL_BAD_EXIT=" + value
	}
	for _, arg := range p.Argv[1:] {
		name, value, hasValue := strings.Cut(arg, "=")
		short, isShort := strings.CutPrefix(arg, "-K")
		switch {
		case arg == "--" || filepath.Base(arg) == "bringupd":
			return toleratesLoss, endsWithTask
		case arg == "-k", name == "--no-kill":
			toleratesLoss = !hasValue || !isOff(value)
		case arg == "--kill-on-bad-exit=0", arg == "-K0":
			endsWithTask = ""
		case name == "--kill-on-bad-exit", isShort && strings.Trim(short, decimalDigits) == "":
			endsWithTask = arg
		}
	}
	return toleratesLoss, endsWithTask
}
