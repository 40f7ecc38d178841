package check

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	idLimits     = "host.limits"
	limitsSource = "getrlimit"
)

// enoughFiles is the number of open files that the services of a job of some hundred nodes need: a
// head holds several connections to each worker. Launch scripts request 65535 and continue with
// less. A limit of 20000, which some machines have, must not cause a warning before each small job.
const enoughFiles = 8192

// lookLimits checks three limits. For open files it checks the hard limit, because the soft limit
// is raised to it; for locked memory the soft limit, which child processes inherit unchanged. Too
// few processes and threads are a failure: services retry for minutes, because the error looks
// temporary.
func (h *Host) lookLimits(s *Sheet) {
	files, filesErr := h.kernel.Limit(unix.RLIMIT_NOFILE)
	locked, lockedErr := h.kernel.Limit(unix.RLIMIT_MEMLOCK)
	cards, _ := h.devices()
	s.Each.Source = "RLIMIT_NOFILE"
	switch {
	case filesErr != nil:
		s.unread(filesErr)
	case files.Max < enoughFiles:
		s.Warn(Environment, "at most "+filesText(files.Max)+" open files", strconv.Itoa(enoughFiles),
			"raise LimitNOFILE of slurmd's unit, or the limit where the job is submitted, which Slurm carries along (PropagateResourceLimits)")
	}
	s.Each.Source = "RLIMIT_MEMLOCK"
	switch {
	case lockedErr != nil:
		s.unread(lockedErr)
	case locked.Cur != unix.RLIM_INFINITY && len(cards) > 0:
		s.Warn(Environment, lockedText(locked.Cur)+" of locked memory", "unlimited, for RDMA",
			"set LimitMEMLOCK=infinity in slurmd's unit and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf; ulimit -l unlimited in a container")
	}
	s.Each.Source = "pids.max, RLIMIT_NPROC"
	if lack, mend := (process.Limits{Tasks: h.Tasks, For: "the services need"}).Lack(h.path("")); lack != "" {
		s.Fail(Environment, lack, "", mend)
	}
	s.Each.Source = limitsSource
	if len(s.Found) == 0 {
		s.Pass(fmt.Sprintf("%s open files, %s of locked memory", filesText(files.Max), lockedText(locked.Cur)))
	}
}

// filesText formats a number of open files for "N open files".
func filesText(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "any number of"
	}
	return strconv.FormatUint(n, 10)
}

// lockedText formats an amount of locked memory in bytes.
func lockedText(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "any amount"
	}
	return prose.Size(n)
}
