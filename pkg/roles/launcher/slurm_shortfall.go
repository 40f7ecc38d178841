package launcher

import (
	"fmt"
	"strconv"
)

// Shortfall is a resource of a Slurm job that a step does not have, which may be a mistake.
type Shortfall struct {
	Problem string // the resources of the step and of the job
	Fix     string // the flag that gives the step all of them
}

// FindShortfalls returns the resources that the step of an environment lacks. cpus is how many CPUs
// the task may use, and nodeCPUs how many its node has, or 0 if they are unknown. It returns nil
// outside of a step.
func FindShortfalls(env Environment, cpus, nodeCPUs int) (found []Shortfall) {
	if !inSlurmStep(env) {
		return nil
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
