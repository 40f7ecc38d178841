package process

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/textutil"
)

// ResourceNeeds are the resources that a program needs before it starts. The Go runtime ends a program
// that runs out of threads or address space with a stack dump, and the program cannot prevent it.
type ResourceNeeds struct {
	Tasks   uint64 // processes and threads
	Files   uint64 // open files
	Memory  uint64 // bytes of address space, in total
	Purpose string // subject of the message about tasks; default "a daemon needs"
}

// FindShortage returns which limit of this process leaves less than needed, and how to fix it. Both
// strings are empty if the limits suffice. Files below root are read. A limit that cannot be read
// counts as unlimited.
func (need ResourceNeeds) FindShortage(root string) (problem, hint string) {
	if need.Tasks > 0 {
		if problem, hint = need.findTaskShortage(root); problem != "" {
			return problem, hint
		}
	}
	if limit := resourceLimit(unix.RLIMIT_NOFILE); limit.Max < need.Files {
		return fmt.Sprintf("a process may open %d files (the hard limit RLIMIT_NOFILE), and this daemon needs %d",
				limit.Max, need.Files),
			"raise ulimit -Hn where the job is submitted, or LimitNOFILE of the launcher's systemd unit"
	}
	if limit := resourceLimit(unix.RLIMIT_AS); limit.Cur < need.Memory {
		return fmt.Sprintf("a process may have %s of address space (RLIMIT_AS), and a daemon needs %s",
				textutil.FormatSize(limit.Cur), textutil.FormatSize(need.Memory)),
			"raise ulimit -v, or the launcher's setting (pvmem of PBS): " +
				"a daemon reserves address space, not memory"
	}
	return "", ""
}

// findTaskShortage checks the limits of processes and threads, as [ResourceNeeds.FindShortage] does:
// those of the cgroup at each level, and that of the user.
func (need ResourceNeeds) findTaskShortage(root string) (problem, hint string) {
	needs := fmt.Sprintf("%s %d", cmp.Or(need.Purpose, "a daemon needs"), need.Tasks)
	pids := Cgroup{CounterFile: "pids.current", LimitFile: "pids.max"}
	for _, dir := range findCgroup(root, "pids", pids, pids).Levels {
		path := filepath.Join(dir, pids.LimitFile)
		limit, used := readNumber(path), readNumber(filepath.Join(dir, pids.CounterFile))
		if used < math.MaxUint64 && limit-min(limit, used) < need.Tasks {
			return fmt.Sprintf("the cgroup allows %d processes and threads (%s), %d are in use, and %s",
					limit, path, used, needs),
				"raise this limit, such as TasksMax of the systemd unit or --pids-limit of the container"
		}
	}
	if limit := resourceLimit(unix.RLIMIT_NPROC).Cur; limit < need.Tasks && os.Geteuid() != 0 {
		return fmt.Sprintf("a user may have %d processes and threads on this node (RLIMIT_NPROC), and %s",
				limit, needs),
			"raise ulimit -u where the job is submitted, or the limit in /etc/security/limits.conf"
	}
	return "", ""
}

// resourceLimit returns a limit of this process; unlimited if it cannot be read.
func resourceLimit(resource int) syscall.Rlimit {
	var limit syscall.Rlimit
	if syscall.Getrlimit(resource, &limit) != nil {
		return syscall.Rlimit{Cur: math.MaxUint64, Max: math.MaxUint64}
	}
	return limit
}

// readNumber returns the number in a file; math.MaxUint64 if there is none, as in "max".
func readNumber(path string) uint64 {
	text, _ := os.ReadFile(path) // an unreadable file has no number
	number, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return number
}

// maxOpenFiles is the limit that RaiseFileLimit does not exceed. Some machines allow a billion
// files, and some programs close every possible descriptor, one by one, when they start another
// program.
const maxOpenFiles = 1 << 20

// RaiseFileLimit raises the limit of open files that children of this process inherit to the hard
// limit, but at most to maxOpenFiles. The usual 1024 is too low: a head of many nodes needs tens of
// thousands. Go raises the limit for itself but restores the original one for children, unless the
// program has set it explicitly.
func RaiseFileLimit() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("cannot read the limit of open files: %w", err)
	}
	if limit.Cur == limit.Max { // set by the user: Go's own increase stops one below the maximum
		return nil
	}
	limit.Cur = min(limit.Max, maxOpenFiles)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("cannot raise the limit of open files to %d: %w", limit.Cur, err)
	}
	return nil
}
