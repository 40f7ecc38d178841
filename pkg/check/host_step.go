package check

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

const (
	idStep     = "host.step"
	stepSource = "SLURM_*" // variables of the environment
)

// maxCPU is the highest CPU number that is accepted: Linux supports at most 8192 CPUs (NR_CPUS).
const maxCPU = 1<<13 - 1

// checkStep checks whether a Slurm step has all the resources of its job.
func (h *Host) checkStep(s *FindingBuilder) {
	env := launcher.EnvironmentOf(h.Environ)
	lacks := launcher.FindShortfalls(env, h.allowedCPUs(), h.nodeCPUs())
	if h.SurvivesNodeLoss {
		if lack, is := launcher.FindNodeLossShortfall(env, h.listStarters()); is {
			lacks = append(lacks, lack)
		}
	}
	for _, lack := range lacks {
		s.AddWarning(ClassUser, lack.Problem, "", lack.Fix)
	}
	switch {
	case len(s.Findings) > 0:
	case !launcher.IsSlurmJob(env):
		s.AddSkip("not a Slurm job")
	default:
		s.AddPass("the step has all resources of its job")
	}
}

// listStarters returns the sruns that run on this node and whose environment this process may read.
func (h *Host) listStarters() (found []launcher.StarterProcess) {
	names, _ := filepath.Glob(h.hostPath("/proc/[0-9]*/comm")) // the pattern is correct
	for _, path := range names {
		if name, err := readTrimmed(path); err != nil || name != "srun" {
			continue
		}
		environ, err := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if err != nil {
			continue // it belongs to another user, or has ended
		}
		argv, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline")) // empty on error
		split := func(text []byte) []string { return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00") }
		found = append(found, launcher.StarterProcess{Argv: split(argv), Environ: split(environ)})
	}
	return found
}

// allowedCPUs returns how many CPUs this process may use, or 0 if that cannot be read.
func (h *Host) allowedCPUs() int {
	// on error the text is empty and lacks the line
	status, _ := readTrimmed(h.hostPath("/proc/self/status"))
	for line := range strings.Lines(status) {
		if list, is := strings.CutPrefix(line, "Cpus_allowed_list:"); is {
			return countRanges(list)
		}
	}
	return 0
}

// nodeCPUs returns how many CPUs the node has, or 0 if that cannot be read.
func (h *Host) nodeCPUs() int {
	// on error the list is empty, for 0 CPUs
	online, _ := readTrimmed(h.hostPath("/sys/devices/system/cpu/online"))
	return countRanges(online)
}

// countRanges returns the number of elements of a list in the kernel's format, or 0 if the list is
// malformed.
func countRanges(list string) int {
	numbers, err := textutil.ParseRanges(strings.TrimSpace(list), maxCPU)
	if err != nil {
		return 0
	}
	return len(numbers)
}
