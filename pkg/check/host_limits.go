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

// enoughFiles is how many open files the services of a job of some hundred nodes need: a head holds several connections
// to each worker of all of them. Launch scripts ask for 65535 and go on with less; nobody should read a warning before
// each small job on a machine that allows 20000.
const enoughFiles = 8192

// lookLimits judges the hard limit of files, for the soft one is raised to it, and the soft limit of locked memory,
// which children have as it is. Without the processes and threads that they need services retry for
// minutes: what they are refused looks as if it could pass.
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

func filesText(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "any number of"
	}
	return strconv.FormatUint(n, 10)
}

func lockedText(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "any amount"
	}
	return prose.Size(n)
}
