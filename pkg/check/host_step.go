package check

import (
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
)

const (
	idStep     = "host.step"
	stepSource = "SLURM_*" // of the environment
)

// maxCPU bounds the numbers of CPUs that are read: Linux has at most 8192 (NR_CPUS).
const maxCPU = 1<<13 - 1

// lookStep judges whether a step of Slurm's has what its job has.
func (h *Host) lookStep(s *Sheet) {
	env := roles.EnvironmentOf(h.Environ)
	for _, lack := range roles.Shortfalls(env, h.ownCPUs(), h.nodeCPUs()) {
		s.Warn(User, lack.Seen, "", lack.Mend)
	}
	switch {
	case len(s.Found) > 0:
	case !roles.Managed(env):
		s.Skip("this is no job of Slurm's")
	default:
		s.Pass("the step has what its job has")
	}
}

// ownCPUs returns how many CPUs this process may use; 0 if that cannot be read.
func (h *Host) ownCPUs() int {
	status, _ := readText(h.path("/proc/self/status")) // what cannot be read has no such line
	for line := range strings.Lines(status) {
		if list, is := strings.CutPrefix(line, "Cpus_allowed_list:"); is {
			return countRanges(list)
		}
	}
	return 0
}

// nodeCPUs returns how many CPUs the node has; 0 if that cannot be read.
func (h *Host) nodeCPUs() int {
	online, _ := readText(h.path("/sys/devices/system/cpu/online")) // an empty list has none
	return countRanges(online)
}

// countRanges returns how many numbers a list of the kernel's has; 0 if it is none.
func countRanges(list string) int {
	numbers, err := prose.ParseRanges(strings.TrimSpace(list), maxCPU)
	if err != nil {
		return 0
	}
	return len(numbers)
}
