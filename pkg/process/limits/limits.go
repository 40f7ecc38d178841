// Package limits reads the limits of this process, its user and its cgroup: for processes and
// threads, open files, address space and memory. It also counts the processes that the kernel has
// killed in the cgroup because memory ran out.
package limits

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

// Needs are the resources that a program needs before it starts. The Go runtime ends a program
// that runs out of threads or address space with a stack dump, and the program cannot prevent it.
type Needs struct {
	Tasks   uint64 // processes and threads
	Files   uint64 // open files
	Memory  uint64 // bytes of address space, in total
	Purpose string // subject of the message about tasks; default "a daemon needs"
}

// maxCountedTasks is the limit from which on a user's tasks are not counted, because counting scans
// all processes of the node.
const maxCountedTasks = 1 << 14

// FindShortage returns which limit of this process leaves less than needed, and how to fix it. Both
// strings are empty if the limits suffice. Files below root are read. A limit that cannot be read
// counts as unlimited.
func (need Needs) FindShortage(root string) (problem, mend string) {
	// Processes and threads: limits of the cgroup and of the user.
	if need.Tasks > 0 {
		if problem, mend = need.findTaskShortage(root); problem != "" {
			return problem, mend
		}
	}
	var limit syscall.Rlimit
	if readLimit(unix.RLIMIT_NOFILE, &limit); limit.Max < need.Files {
		return fmt.Sprintf("a process may open %d files (the hard limit RLIMIT_NOFILE), and this daemon needs %d", limit.Max, need.Files),
			"raise ulimit -Hn where the job is submitted, or LimitNOFILE of the launcher's systemd unit"
	}
	if readLimit(unix.RLIMIT_AS, &limit); limit.Cur < need.Memory {
		return fmt.Sprintf("a process may have %s of address space (RLIMIT_AS), and a daemon needs %s",
				textutil.FormatSize(limit.Cur), textutil.FormatSize(need.Memory)),
			"raise ulimit -v, or the launcher's setting (h_vmem of Grid Engine, pvmem of PBS): " +
				"a daemon reserves address space, not memory"
	}
	return "", ""
}

// findTaskShortage checks the limits of processes and threads, as [Needs.FindShortage] does.
func (need Needs) findTaskShortage(root string) (problem, mend string) {
	needs := fmt.Sprintf("%s %d", cmp.Or(need.Purpose, "a daemon needs"), need.Tasks)
	// The cgroup's limit, at each level.
	pids := findCgroup(root, "pids", Cgroup{CounterFile: "pids.current", LimitFile: "pids.max"}, Cgroup{CounterFile: "pids.current", LimitFile: "pids.max"})
	for _, dir := range pids.Levels {
		most, used := readNumber(filepath.Join(dir, pids.LimitFile)), readNumber(filepath.Join(dir, pids.CounterFile))
		if used < math.MaxUint64 && remainingOf(most, used) < need.Tasks {
			return fmt.Sprintf("the cgroup allows %d processes and threads (%s), %d are in use, and %s",
					most, filepath.Join(dir, pids.LimitFile), used, needs),
				"raise this limit, such as TasksMax of the systemd unit or --pids-limit of the container"
		}
	}
	var limit syscall.Rlimit
	if readLimit(unix.RLIMIT_NPROC, &limit); limit.Cur < maxCountedTasks && os.Geteuid() != 0 {
		if used := countTasks(root, os.Getuid()); remainingOf(limit.Cur, used) < need.Tasks {
			return fmt.Sprintf("a user may have %d processes and threads on this node (RLIMIT_NPROC), %d are in use, and %s",
					limit.Cur, used, needs),
				"raise ulimit -u where the job is submitted, or the limit in /etc/security/limits.conf, " +
					"or end other processes there"
		}
	}
	return "", ""
}

// readLimit reads a limit into limit; it sets it to unlimited if it cannot be read.
func readLimit(resource int, limit *syscall.Rlimit) {
	if syscall.Getrlimit(resource, limit) != nil {
		*limit = syscall.Rlimit{Cur: math.MaxUint64, Max: math.MaxUint64}
	}
}

// remainingOf returns how much of a limit is still free.
func remainingOf(most, used uint64) uint64 { return most - min(most, used) }

// readNumber returns the number in a file; math.MaxUint64 if there is none, as in "max".
func readNumber(path string) uint64 {
	text, _ := os.ReadFile(path) // an unreadable file has no number
	number, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return number
}

// countTasks returns the number of the user's processes and threads, as far as /proc shows them.
func countTasks(root string, uid int) (count uint64) {
	entries, _ := os.ReadDir(filepath.Join(root, "proc")) // without /proc the count is 0
	for _, entry := range entries {
		info, err := entry.Info()
		if _, number := strconv.Atoi(entry.Name()); number != nil || err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != uid {
			continue
		}
		// the process may have ended
		tasks, _ := os.ReadDir(filepath.Join(root, "proc", entry.Name(), "task"))
		count += uint64(len(tasks))
	}
	return count
}
