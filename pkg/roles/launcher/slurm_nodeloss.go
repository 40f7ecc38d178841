package launcher

import (
	"path/filepath"
	"slices"
	"strings"
)

// StarterProcess is a process that starts the daemons of a job, as the node shows it.
type StarterProcess struct {
	Argv, Environ []string
}

// FindNodeLossShortfall returns the options that an srun of this job lacks if its step must go on
// after the loss of a node. running are processes of this node; none of them may be an srun, because
// it may run elsewhere. Slurm gives neither a task nor scontrol these options, nor --no-kill of
// sbatch and salloc.
func FindNodeLossShortfall(env Environment, running []StarterProcess) (lack Shortfall, is bool) {
	if !inSlurmStep(env) {
		return lack, false
	}
	for _, p := range running {
		if !p.isSrunOf(env.valueOf("SLURM_JOB_ID")) {
			continue
		}
		var has []string
		if option := p.endsStepWithTask(); option != "" {
			has = append(has, option)
		}
		if !p.toleratesNodeLoss() {
			has = append(has, "no --no-kill")
		}
		if len(has) > 0 {
			return Shortfall{
				"Slurm will end this step with a lost node, without which the roles could go on: srun has " + strings.Join(has, " and "),
				"give srun --no-kill --kill-on-bad-exit=0, and sbatch or salloc --no-kill",
			}, true
		}
	}
	return lack, false
}

// isSrunOf reports whether the process is an srun in the environment of a job.
func (p StarterProcess) isSrunOf(job string) bool {
	return len(p.Argv) > 0 && filepath.Base(p.Argv[0]) == slurmLauncher.traits.StarterProgram &&
		EnvironmentOf(p.Environ).valueOf("SLURM_JOB_ID") == job
}

// options returns the arguments of srun that may be options: those before the command, as far as it
// can be recognised.
func (p StarterProcess) options() []string {
	end := slices.IndexFunc(p.Argv, func(arg string) bool { return arg == "--" || filepath.Base(arg) == "bringupd" })
	if end < 0 {
		end = len(p.Argv)
	}
	return p.Argv[1:max(1, end)]
}

// toleratesNodeLoss reports whether srun has --no-kill.
func (p StarterProcess) toleratesNodeLoss() bool {
	value, found := EnvironmentOf(p.Environ)("SLURM_NO_KILL")
	tolerates := found && !isOff(value)
	for _, arg := range p.options() {
		switch {
		case arg == "-k" || arg == "--no-kill":
			tolerates = true
		case strings.HasPrefix(arg, "--no-kill="):
			tolerates = !isOff(strings.TrimPrefix(arg, "--no-kill="))
		}
	}
	return tolerates
}

// isOff reports whether a value disables --no-kill.
func isOff(value string) bool {
	return strings.EqualFold(value, "off") || strings.EqualFold(value, "no")
}

// endsStepWithTask returns the option or the variable that makes srun end the step with the first
// task that fails, or an empty string. Without either, the site's KillOnBadExit decides, whose
// default is 0.
func (p StarterProcess) endsStepWithTask() (option string) {
	if value := EnvironmentOf(p.Environ).valueOf("SLURM_KILL_BAD_EXIT"); value != "" && value != "0" {
		option = "SLURM_KILL_BAD_EXIT=" + value
	}
	for _, arg := range p.options() {
		switch value, isShort := strings.CutPrefix(arg, "-K"); {
		case arg == "--kill-on-bad-exit=0", arg == "-K0":
			option = ""
		case arg == "--kill-on-bad-exit", strings.HasPrefix(arg, "--kill-on-bad-exit="), isShort && strings.Trim(value, decimalDigits) == "":
			option = arg
		}
	}
	return option
}
