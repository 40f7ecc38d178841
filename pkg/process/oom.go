package process

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// OOM is what the kernel's count of a memory cgroup says about the time in which a child ran. Its zero value says
// nothing: no process was ended, or there is no count that can be read.
type OOM struct {
	// Kills is how many processes of the cgroup the kernel has ended because memory ran out.
	Kills int
	// Limit is the least limit that holds for the cgroup, in bytes; 0 where there is none, and it was the machine's memory
	// that ran out.
	Limit int64
	// Cgroup is the directory of the cgroup.
	Cgroup string
}

// String says it in the words of an error message; empty where nothing is to be said.
func (o OOM) String() string {
	if o.Kills == 0 {
		return ""
	}
	processes, limit := "processes", "no limit"
	if o.Kills == 1 {
		processes = "process"
	}
	if o.Limit > 0 {
		limit = "limit " + prose.SetSize(uint64(o.Limit))
	}
	return fmt.Sprintf("the kernel has ended %d %s of this cgroup because memory ran out (%s; %s)", o.Kills, processes, limit, o.Cgroup)
}

// memoryGroup is the memory cgroup that a process is in, and those above it.
type memoryGroup = cgroup

// cgroup is a cgroup that a process is in, and those above it.
type cgroup struct {
	levels []string // the directories, innermost first
	events string   // the file of the count
	limit  string   // the file of the limit
}

// findMemoryGroup returns the memory cgroup of this process, of version 1 or 2, in the file system below root; one
// without levels where there is none, or none that shows from here.
func findMemoryGroup(root string) memoryGroup {
	return findGroup(root, "memory", cgroup{events: "memory.oom_control", limit: "memory.limit_in_bytes"},
		cgroup{events: "memory.events", limit: "memory.max"})
}

// findGroup returns the cgroup of this process for a controller of version 1, with the files of v1, or that of version
// 2, with the files of v2. It has no levels if there is none, or none that shows from here.
func findGroup(root, controller string, v1, v2 cgroup) cgroup {
	// What can't be read names no group.
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	mounts, _ := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	for _, version := range []struct {
		group string // how the line of /proc/self/cgroup has it
		kind  string // of file system
		files cgroup
	}{
		{controller, "cgroup", v1},
		{"", "cgroup2", v2},
	} {
		path, in := groupPath(string(groups), version.group)
		if !in {
			continue
		}
		mount, at, mounted := groupMount(string(mounts), version.kind, version.group)
		below, shown := strings.CutPrefix(path, strings.TrimSuffix(mount, "/"))
		if !mounted || !shown || strings.HasPrefix(path, "/..") {
			continue
		}
		group := version.files
		for dir := filepath.Join(at, below); ; dir = filepath.Dir(dir) {
			group.levels = append(group.levels, filepath.Join(root, dir))
			if dir == at || len(dir) <= len(at) {
				return group
			}
		}
	}
	return cgroup{}
}

// groupPath returns the path of a cgroup by /proc/self/cgroup. Version 2 has the empty list of controllers.
func groupPath(text, controller string) (path string, in bool) {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) == 3 && hasWord(fields[1], controller) {
			return fields[2], true
		}
	}
	return "", false
}

// groupMount returns where /proc/self/mountinfo has the hierarchy of a controller, and which part of it is there.
func groupMount(text, kind, controller string) (part, at string, mounted bool) {
	for line := range strings.Lines(text) {
		before, after, whole := strings.Cut(line, " - ")
		mount, source := strings.Fields(before), strings.Fields(after)
		if !whole || len(mount) < 5 || len(source) < 3 || source[0] != kind {
			continue
		}
		if controller == "" || hasWord(source[2], controller) {
			return mount[3], mount[4], true
		}
	}
	return "", "", false
}

// hasWord tells whether a list with commas has a word.
func hasWord(list, word string) bool { return slices.Contains(strings.Split(list, ","), word) }

// kills returns the count of each level; -1 where it can't be read.
func (g memoryGroup) kills() []int {
	counts := make([]int, len(g.levels))
	for i, dir := range g.levels {
		counts[i] = -1
		data, _ := os.ReadFile(filepath.Join(dir, g.events))
		for line := range strings.Lines(string(data)) {
			text, is := strings.CutPrefix(line, "oom_kill ")
			if count, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31); is && err == nil {
				counts[i] = int(count)
			}
		}
	}
	return counts
}

// least returns the least limit from a level outwards; 0 where there is none. Version 1 writes none as the largest
// number of pages.
func (g memoryGroup) least(level int) int64 {
	var least int64
	for _, dir := range g.levels[level:] {
		data, _ := os.ReadFile(filepath.Join(dir, g.limit))
		limit, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err == nil && 0 < limit && limit <= math.MaxInt64/2 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// MemoryLimit returns the least limit of the memory cgroup of this process and of those above it, in bytes, in the file
// system below root; 0 where there is none, or none that shows from here.
func MemoryLimit(root string) int64 { return findMemoryGroup(root).least(0) }

// since tells what the counts say that were read before. A level further out counts what other steps and jobs lose, too:
// none is asked beyond the last that has a limit, and none but our own where the child was not killed.
func (g memoryGroup) since(before []int, killed bool) OOM {
	if len(before) == 0 || len(before) != len(g.levels) {
		return OOM{}
	}
	for i, count := range g.kills() {
		if i > 0 && (!killed || g.least(i) == 0) {
			break
		}
		if before[i] >= 0 && count > before[i] {
			return OOM{Kills: count - before[i], Limit: g.least(i), Cgroup: g.levels[i]}
		}
	}
	return OOM{}
}
