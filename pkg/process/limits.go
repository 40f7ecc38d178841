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

// Limits are what a program needs before it starts. The Go runtime ends a program that lacks
// threads or address space later on with a dump of its stacks, and no code of ours can prevent it.
type Limits struct {
	Tasks  uint64 // processes and threads
	Files  uint64 // open files
	Memory uint64 // bytes of address space, in all
	For    string // what needs the tasks, in words; empty: "a daemon needs"
}

// manyTasks is up to which limit the tasks of a user are counted, which takes a look at all
// processes of the node.
const manyTasks = 1 << 14

// Lack returns which limit of this process leaves less than is needed, in the file system below
// root, and what to do; empty strings if all leave enough. A limit that cannot be read is none.
func (need Limits) Lack(root string) (problem, mend string) {
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

// lackOfTasks is Lack for processes and threads alone.
func (need Limits) lackOfTasks(root string) (problem, mend string) {
	needs := fmt.Sprintf("%s %d", cmp.Or(need.For, "a daemon needs"), need.Tasks)
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

// unlimited reads a limit, which is as good as none if it cannot be read.
func unlimited(resource int, limit *syscall.Rlimit) {
	if syscall.Getrlimit(resource, limit) != nil {
		*limit = syscall.Rlimit{Cur: math.MaxUint64, Max: math.MaxUint64}
	}
}

func left(most, used uint64) uint64 { return most - min(most, used) }

// numberIn returns the number in a file; the highest if it has none, as in "max".
func numberIn(path string) uint64 {
	text, _ := os.ReadFile(path) // what cannot be read has none
	number, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return number
}

// tasksOf returns how many processes and threads a user has, as far as they show.
func tasksOf(root string, uid int) (count uint64) {
	entries, _ := os.ReadDir(filepath.Join(root, "proc")) // none shows
	for _, entry := range entries {
		info, err := entry.Info()
		if _, number := strconv.Atoi(entry.Name()); number != nil || err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != uid {
			continue
		}
		tasks, _ := os.ReadDir(filepath.Join(root, "proc", entry.Name(), "task")) // it may have ended
		count += uint64(len(tasks))
	}
	return count
}
