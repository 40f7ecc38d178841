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

	"github.com/bringupd/bringupd/pkg/prose"
)

// Limits are the resources that a program needs before it starts. The Go runtime ends a program
// that runs out of threads or address space with a stack dump, and the program cannot prevent it.
type Limits struct {
	Tasks  uint64 // processes and threads
	Files  uint64 // open files
	Memory uint64 // bytes of address space, in total
	For    string // subject of the message about tasks; default "a daemon needs"
}

// manyTasks is the limit from which on a user's tasks are not counted, because counting scans all
// processes of the node.
const manyTasks = 1 << 14

// Lack returns which limit of this process leaves less than needed, and how to fix it. Both strings
// are empty if the limits suffice. Files below root are read. A limit that cannot be read counts as
// unlimited.
func (need Limits) Lack(root string) (problem, mend string) {
	// Processes and threads: limits of the cgroup and of the user.
	if need.Tasks > 0 {
		if problem, mend = need.lackOfTasks(root); problem != "" {
			return problem, mend
		}
	}
	var limit syscall.Rlimit
	if unlimited(unix.RLIMIT_NOFILE, &limit); limit.Max < need.Files {
		return fmt.Sprintf("a process may open %d files (the hard limit RLIMIT_NOFILE), and this daemon needs %d", limit.Max, need.Files),
			"raise ulimit -Hn where the job is submitted, or LimitNOFILE of the launcher's systemd unit"
	}
	if unlimited(unix.RLIMIT_AS, &limit); limit.Cur < need.Memory {
		return fmt.Sprintf("a process may have %s of address space (RLIMIT_AS), and a daemon needs %s",
				prose.Size(limit.Cur), prose.Size(need.Memory)),
			"raise ulimit -v, or what the launcher sets it by (h_vmem of Grid Engine, pvmem of PBS): " +
				"a daemon reserves address space, and not memory"
	}
	return "", ""
}

// lackOfTasks checks the limits of processes and threads, as [Limits.Lack] does.
func (need Limits) lackOfTasks(root string) (problem, mend string) {
	needs := fmt.Sprintf("%s %d", cmp.Or(need.For, "a daemon needs"), need.Tasks)
	// The cgroup's limit, at each level.
	pids := findGroup(root, "pids", cgroup{events: "pids.current", limit: "pids.max"}, cgroup{events: "pids.current", limit: "pids.max"})
	for _, dir := range pids.levels {
		most, used := numberIn(filepath.Join(dir, pids.limit)), numberIn(filepath.Join(dir, pids.events))
		if used < math.MaxUint64 && left(most, used) < need.Tasks {
			return fmt.Sprintf("the cgroup allows %d processes and threads (%s), %d are in use, and %s",
					most, filepath.Join(dir, pids.limit), used, needs),
				"raise this limit, such as TasksMax of the systemd unit or --pids-limit of the container"
		}
	}
	var limit syscall.Rlimit
	if unlimited(unix.RLIMIT_NPROC, &limit); limit.Cur < manyTasks && os.Geteuid() != 0 {
		if used := tasksOf(root, os.Getuid()); left(limit.Cur, used) < need.Tasks {
			return fmt.Sprintf("a user may have %d processes and threads on this node (RLIMIT_NPROC), %d are in use, and %s",
					limit.Cur, used, needs),
				"raise ulimit -u where the job is submitted, or the limit in /etc/security/limits.conf, " +
					"or end what else runs there"
		}
	}
	return "", ""
}

// unlimited reads a limit into limit; it sets it to unlimited if it cannot be read.
func unlimited(resource int, limit *syscall.Rlimit) {
	if syscall.Getrlimit(resource, limit) != nil {
		*limit = syscall.Rlimit{Cur: math.MaxUint64, Max: math.MaxUint64}
	}
}

// left returns how much of a limit is still free.
func left(most, used uint64) uint64 { return most - min(most, used) }

// numberIn returns the number in a file; math.MaxUint64 if there is none, as in "max".
func numberIn(path string) uint64 {
	text, _ := os.ReadFile(path) // an unreadable file has no number
	number, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return number
}

// tasksOf returns the number of the user's processes and threads, as far as /proc shows them.
func tasksOf(root string, uid int) (count uint64) {
	entries, _ := os.ReadDir(filepath.Join(root, "proc")) // without /proc the count is 0
	for _, entry := range entries {
		info, err := entry.Info()
		if _, number := strconv.Atoi(entry.Name()); number != nil || err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != uid {
			continue
		}
		tasks, _ := os.ReadDir(filepath.Join(root, "proc", entry.Name(), "task")) // the process may have ended
		count += uint64(len(tasks))
	}
	return count
}
