package doctor

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/service"
)

// userProcess is a process of this user, as read from /proc.
type userProcess struct {
	pid, parent int
	name        string // name of its program
	args        []string
	environ     map[string]string
	// pathTexts are the texts that may contain names of files in use: the arguments, the environment,
	// the mappings and the open files.
	pathTexts []string
}

// scanLeftovers returns what earlier runs of the user have left on the node. root is the directory
// that contains /proc and /dev/shm.
func scanLeftovers(root, tempDir string, user int) Leftovers {
	all := listProcesses(filepath.Join("/", root, "proc"), user)
	shm := filepath.Join("/", root, "dev/shm")
	parents := []string{filepath.Clean(tempDir)}
	for _, dir := range service.ShortParents() {
		if dir = filepath.Join("/", root, dir); !slices.Contains(parents, dir) {
			parents = append(parents, dir)
		}
	}
	// texts with a path in these directories; filtered because there may be thousands of files
	var uses []string
	roots := append(slices.Clone(parents), shm)
	for _, p := range all {
		for _, text := range p.pathTexts {
			if slices.ContainsFunc(roots, func(dir string) bool { return strings.Contains(text, dir) }) {
				uses = append(uses, text)
			}
		}
	}
	used := func(path string) bool {
		return slices.ContainsFunc(uses, func(text string) bool { return strings.Contains(text, path) })
	}
	// Collect the processes, the files in /dev/shm and the directories that are not in use. A daemon
	// has its directories locked, also if its process is not visible here.
	l := Leftovers{Processes: findStrays(all, os.Getpid())}
	for _, file := range ownedFiles(shm, user) {
		if !used(file.Path) {
			l.Shm = append(l.Shm, file)
		}
	}
	for _, dir := range parents {
		entries, _ := os.ReadDir(dir)
		for _, entry := range entries {
			path := filepath.Join(dir, entry.Name())
			own := strings.HasPrefix(entry.Name(), "bu-") && entry.IsDir() && isOwnedBy(entry, user)
			if own && !used(path) && !files.HasOwner(path) {
				l.Temp = append(l.Temp, path)
			}
		}
	}
	return l
}

// findStrays returns the processes that were started by a daemon which no longer runs. self is the
// process id of the doctor. Processes of a job are left out while a daemon of the same job runs
// here: a service that has put itself into the background is no longer a child of it.
func findStrays(all []userProcess, self int) (found []Process) {
	byPID := make(map[int]userProcess, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	// line returns a process and its ancestors.
	line := func(pid int) (above []userProcess) {
		for p, known := byPID[pid]; known && len(above) <= len(all); p, known = byPID[p.parent] {
			above = append(above, p)
		}
		return above
	}
	isSelf := func(q userProcess) bool { return q.pid == self }
	// Find the jobs with a running daemon: its own, or those of its children. The doctor itself and
	// its children do not count.
	active := make(map[string]bool)
	for _, p := range all {
		if slices.ContainsFunc(line(p.pid), userProcess.isDaemon) && !slices.ContainsFunc(line(p.pid), isSelf) {
			active[p.jobKey()] = true
		}
	}
	delete(active, "") // a daemon outside of a job
	// Select the processes with the mark of a daemon. Leave out those with a daemon as an ancestor,
	// the ancestors of the doctor, among them its shell, and the jobs with a running daemon.
	for _, p := range all {
		run := p.environ[launcher.RunVariable]
		marked := p.environ[process.MarkVariable] != "" || run != ""
		isAncestor := slices.ContainsFunc(line(self), func(q userProcess) bool { return q.pid == p.pid })
		if !marked || isAncestor || p.isProgram() || active[p.jobKey()] {
			continue
		}
		if !slices.ContainsFunc(line(p.pid), func(q userProcess) bool {
			return isSelf(q) || strings.HasPrefix(q.name, daemonName)
		}) {
			found = append(found, Process{PID: p.pid, Command: p.name, Run: run})
		}
	}
	return found
}

// jobKey returns the id of the job to which the process belongs, or else its run. It is empty if
// there is neither.
func (p userProcess) jobKey() string {
	for _, name := range append(launcher.JobVariables(), launcher.RunVariable) {
		if id := p.environ[name]; id != "" {
			return id
		}
	}
	return ""
}

const daemonName = "bringupd"

// isProgram reports whether the process runs this program.
func (p userProcess) isProgram() bool {
	return len(p.args) > 0 && strings.HasPrefix(p.args[0], daemonName)
}

// isDaemon reports whether the process is a daemon of a job, as opposed to a command that only
// inspects runs.
func (p userProcess) isDaemon() bool {
	inspecting := []string{"doctor", "check", "status", "report", "logs", "exec", "help", "version"}
	return strings.HasPrefix(p.name, daemonName) &&
		(len(p.args) < 2 || !slices.Contains(inspecting, p.args[1]))
}

// ownedFiles returns the files below a directory that belong to the user.
func ownedFiles(dir string, user int) (files []File) {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // the directory belongs to another user
		}
		if entry.Type().IsRegular() && isOwnedBy(entry, user) {
			if info, err := entry.Info(); err == nil {
				files = append(files, File{Path: path, Size: info.Size()})
			}
		}
		return nil
	})
	return files
}

// isOwnedBy reports whether a directory entry belongs to the user.
func isOwnedBy(entry fs.DirEntry, user int) bool {
	info, err := entry.Info()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == user
}

// listProcesses returns the processes of the user below dir, which is /proc. It leaves out those
// that cannot be read. Parts of a process that cannot be read count as empty.
func listProcesses(dir string, user int) (all []userProcess) {
	entries, _ := os.ReadDir(dir)
	proc, err := procfs.NewFS(dir)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !isOwnedBy(entry, user) {
			continue
		}
		one, err := proc.Proc(pid)
		if err != nil {
			continue // it has ended
		}
		stat, err := one.Stat()
		if err != nil {
			continue
		}
		p := userProcess{pid: pid, parent: stat.PPID, name: stat.Comm, environ: make(map[string]string)}
		p.args, _ = one.CmdLine()
		environ, _ := one.Environ()
		for _, entry := range environ {
			if name, value, ok := strings.Cut(entry, "="); ok {
				p.environ[name] = value
				p.pathTexts = append(p.pathTexts, value)
			}
		}
		maps, _ := one.ProcMaps()
		for _, mapping := range maps {
			p.pathTexts = append(p.pathTexts, mapping.Pathname)
		}
		targets, _ := one.FileDescriptorTargets()
		p.pathTexts = slices.Concat(p.pathTexts, p.args, targets)
		all = append(all, p)
	}
	return all
}
