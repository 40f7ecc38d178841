package check

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/process/limits"
)

const (
	idLimits     = "host.limits"
	limitsSource = "getrlimit"
)

// minOpenFiles is the number of open files that the services of a job of some hundred nodes need: a
// head holds several connections to each worker. Launch scripts request 65535 and continue with
// less. A limit of 20000, which some machines have, must not cause a warning before each small job.
const minOpenFiles = 8192

// checkLimits checks three limits. For open files it checks the hard limit, because the soft limit
// is raised to it; for locked memory the soft limit, which child processes inherit unchanged. Too
// few processes and threads are a failure: services retry for minutes, because the error looks
// temporary.
func (h *Host) checkLimits(s *FindingBuilder) {
	files, filesErr := h.system.ResourceLimit(unix.RLIMIT_NOFILE)
	locked, lockedErr := h.system.ResourceLimit(unix.RLIMIT_MEMLOCK)
	cards, _ := h.rdmaDevices()
	s.Template.Source = "RLIMIT_NOFILE"
	switch {
	case filesErr != nil:
		s.addUnreadable(filesErr)
	case files.Max < minOpenFiles:
		s.AddWarning(ClassEnvironment, "at most "+formatFileLimit(files.Max)+" open files", strconv.Itoa(minOpenFiles),
			"raise LimitNOFILE in slurmd's unit, or the limit of the submitting shell, which Slurm propagates (PropagateResourceLimits)")
	}
	s.Template.Source = "RLIMIT_MEMLOCK"
	switch {
	case lockedErr != nil:
		s.addUnreadable(lockedErr)
	case locked.Cur != unix.RLIM_INFINITY && len(cards) > 0:
		s.AddWarning(ClassEnvironment, formatMemlockLimit(locked.Cur)+" of locked memory", "unlimited, for RDMA",
			"set LimitMEMLOCK=infinity in slurmd's unit and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf; in a container, ulimit -l unlimited")
	}
	s.Template.Source = "pids.max, RLIMIT_NPROC"
	if lack, mend := (limits.Needs{Tasks: h.Tasks, Purpose: "the services need"}).FindShortage(h.hostPath("")); lack != "" {
		s.AddFailure(ClassEnvironment, lack, "", mend)
	}
	s.Template.Source = limitsSource
	if len(s.Findings) == 0 {
		s.AddPass(fmt.Sprintf("%s open files, %s locked memory", formatFileLimit(files.Max), formatMemlockLimit(locked.Cur)))
	}
}

// formatFileLimit formats a number of open files for "N open files".
func formatFileLimit(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return strconv.FormatUint(n, 10)
}

// formatMemlockLimit formats an amount of locked memory in bytes.
func formatMemlockLimit(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return textutil.FormatSize(n)
}
