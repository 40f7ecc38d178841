package launcher

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SlurmComponents returns the hosts of each component of a Slurm allocation, of which an ordinary
// job has one. Unlike an identity, they are also known in the job's script. It returns nil outside
// of a job.
func SlurmComponents(env Environment) (components [][]string, err error) {
	_, size := env.firstSet("SLURM_HET_SIZE", "SLURM_PACK_SIZE")
	count, _ := strconv.Atoi(size)
	if count < 2 {
		name, list := env.firstSet("SLURM_JOB_NODELIST", "SLURM_NODELIST")
		if list == "" || !IsSlurmJob(env) {
			return nil, nil
		}
		hosts, err := ExpandNodeList(list, 0)
		if err != nil {
			return nil, fmt.Errorf("cannot use %s=%s: %v", name, shortenText(list), err)
		}
		return [][]string{hosts}, nil
	}
	for i := range min(count, maxHetComponents) {
		name, list := env.firstSet(fmt.Sprintf("SLURM_JOB_NODELIST_HET_GROUP_%d", i), fmt.Sprintf("SLURM_JOB_NODELIST_PACK_GROUP_%d", i))
		hosts, err := ExpandNodeList(list, 0)
		if err != nil {
			return nil, fmt.Errorf("cannot use %s=%s: %v", name, shortenText(list), err)
		}
		components = append(components, hosts)
	}
	return components, nil
}

// ComponentOf returns the number of the component of a heterogeneous job that has a host. It is 0 in
// any other job, and if the host is unknown.
func ComponentOf(env Environment, host string) int {
	components, err := SlurmComponents(env)
	if err != nil {
		return 0
	}
	return max(0, slices.IndexFunc(components, func(hosts []string) bool { return slices.Contains(hosts, host) }))
}

// RequestedGPUs returns the number of GPUs of each node of a job: those of this node, or, in a shell
// that salloc has started, those that the job has requested. It returns -1 if it is unknown.
func RequestedGPUs(env Environment) int {
	if granted, _ := BatchGPUs(env); granted >= 0 {
		return granted
	}
	// The list has the GPUs of each type, such as "a100:3,v100:1", or one number.
	sum := 0
	for part := range strings.SplitSeq(env.valueOf("SLURM_GPUS_PER_NODE"), ",") {
		n, err := strconv.Atoi(part[strings.LastIndexByte(part, ':')+1:])
		if err != nil || n < 0 {
			return -1
		}
		sum += n
	}
	return sum
}
