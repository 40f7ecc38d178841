package check

import (
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
)

const (
	idStep     = "host.step"
	stepSource = "SLURM_*" // variables of the environment
)

// maxCPU is the highest CPU number that is accepted: Linux supports at most 8192 CPUs (NR_CPUS).
const maxCPU = 1<<13 - 1

// lookStep checks whether a Slurm step has all the resources of its job.
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

// ownCPUs returns how many CPUs this process may use, or 0 if that cannot be read.
func (h *Host) ownCPUs() int {
	status, _ := readText(h.path("/proc/self/status")) // on error the text is empty and lacks the line
	for line := range strings.Lines(status) {
		if list, is := strings.CutPrefix(line, "Cpus_allowed_list:"); is {
			return countRanges(list)
		}
	}
	return 0
}

// nodeCPUs returns how many CPUs the node has, or 0 if that cannot be read.
func (h *Host) nodeCPUs() int {
	online, _ := readText(h.path("/sys/devices/system/cpu/online")) // on error the list is empty, for 0 CPUs
	return countRanges(online)
}

// countRanges returns the number of elements of a list in the kernel's format, or 0 if the list is
// malformed.
func countRanges(list string) int {
	numbers, err := prose.ParseRanges(strings.TrimSpace(list), maxCPU)
	if err != nil {
		return 0
	}
	return len(numbers)
}
