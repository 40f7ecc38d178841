package check

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

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

// limits are what is known of this process's limits.
type limits struct {
	files, locked       Limit
	filesErr, lockedErr error
	rdma                bool // the node has network cards that want memory locked
}

func (h Host) lookLimits() []Finding {
	var l limits
	l.files, l.filesErr = h.kernel.Limit(unix.RLIMIT_NOFILE)
	l.locked, l.lockedErr = h.kernel.Limit(unix.RLIMIT_MEMLOCK)
	l.rdma = len(h.devices()) > 0
	return judgeLimits(l)
}

// judgeLimits judges the hard limit of files, for the soft one is raised to it,
// and the soft limit of locked memory, which children have as it is.
func judgeLimits(l limits) []Finding {
	var wrong []Finding
	warn := func(name, observed, expected, hint string) {
		wrong = append(wrong, Finding{
			ID: idLimits, Verdict: Warn, Class: Node, Source: name, Observed: observed, Expected: expected, Hint: hint,
		})
	}
	switch {
	case l.filesErr != nil:
		wrong = append(wrong, unread(idLimits, "RLIMIT_NOFILE", l.filesErr))
	case l.files.Hard < enoughFiles:
		warn("RLIMIT_NOFILE", "at most "+filesText(l.files.Hard)+" open files", strconv.Itoa(enoughFiles),
			"raise LimitNOFILE of slurmd's unit, or the limit where the job is submitted, which Slurm carries along (PropagateResourceLimits)")
	}
	switch {
	case l.lockedErr != nil:
		wrong = append(wrong, unread(idLimits, "RLIMIT_MEMLOCK", l.lockedErr))
	case l.rdma && l.locked.Soft != unix.RLIM_INFINITY:
		warn("RLIMIT_MEMLOCK", lockedText(l.locked.Soft)+" of locked memory", "unlimited, for RDMA",
			"set LimitMEMLOCK=infinity in slurmd's unit and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf; ulimit -l unlimited in a container")
	}
	if len(wrong) > 0 {
		return wrong
	}
	return []Finding{well(idLimits, limitsSource,
		fmt.Sprintf("%s open files, %s of locked memory", filesText(l.files.Hard), lockedText(l.locked.Soft)))}
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
