package process

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func describeKills(o *record.OOMReport) string {
	processes, limit := "processes", "no limit"
	if o.Kills == 1 {
		processes = "process"
	}
	if o.Limit > 0 {
		limit = "limit " + textutil.FormatSize(uint64(o.Limit))
	}
	return fmt.Sprintf("the kernel has ended %d %s of this cgroup because memory ran out (%s; %s)",
		o.Kills, processes, limit, o.Cgroup)
}

// Cgroup is the cgroup of a process, including its ancestors.
type Cgroup struct {
	Levels      []string // directories, innermost first
	CounterFile string   // name of the file with the counter
	LimitFile   string   // name of the file with the limit
}

// FindMemoryCgroup returns the memory cgroup, version 1 or 2, of this process. Files below root are
// read. It has no levels if there is none, or if it is not visible from here.
func FindMemoryCgroup(root string) Cgroup {
	v1 := Cgroup{CounterFile: "memory.oom_control", LimitFile: "memory.limit_in_bytes"}
	return findCgroup(root, "memory", v1, Cgroup{CounterFile: "memory.events", LimitFile: "memory.max"})
}

// findCgroup returns the cgroup of this process: that of a version 1 controller, with the file
// names of v1, or that of version 2, with those of v2. It has no levels if there is none, or if it
// is not visible from here.
func findCgroup(root, controller string, v1, v2 Cgroup) Cgroup {
	// Read errors are ignored: empty text names no cgroup.
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	mounts, _ := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	for _, version := range []struct {
		group string // controller, as in /proc/self/cgroup
		kind  string // type of file system
		files Cgroup
	}{
		{controller, "cgroup", v1},
		{"", "cgroup2", v2},
	} {
		path, in := cgroupPath(string(groups), version.group)
		if !in {
			continue
		}
		// Find the directory of the cgroup, which may be outside the mounted part.
		mount, at, mounted := cgroupMount(string(mounts), version.kind, version.group)
		below, shown := strings.CutPrefix(path, strings.TrimSuffix(mount, "/"))
		if !mounted || !shown || strings.HasPrefix(path, "/..") {
			continue
		}
		group := version.files
		// Collect the directories up to the mount point.
		for dir := filepath.Join(at, below); ; dir = filepath.Dir(dir) {
			group.Levels = append(group.Levels, filepath.Join(root, dir))
			if dir == at || len(dir) <= len(at) {
				return group
			}
		}
	}
	return Cgroup{}
}

// cgroupPath returns the path of the cgroup for a controller, from the text of /proc/self/cgroup.
// In version 2 the list of controllers is empty.
func cgroupPath(text, controller string) (path string, in bool) {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) == 3 && hasWord(fields[1], controller) {
			return fields[2], true
		}
	}
	return "", false
}

// cgroupMount returns the mount point of a controller's hierarchy, and the part of the hierarchy
// that is mounted there, from the text of /proc/self/mountinfo.
func cgroupMount(text, kind, controller string) (part, at string, mounted bool) {
	isWanted := func(m *mountinfo.Info) (skip, stop bool) {
		is := m.FSType == kind && (controller == "" || hasWord(m.VFSOptions, controller))
		return !is, is
	}
	found, err := mountinfo.GetMountsFromReader(strings.NewReader(text), isWanted)
	if err != nil || len(found) == 0 {
		return "", "", false
	}
	return found[0].Root, found[0].Mountpoint, true
}

func hasWord(list, word string) bool { return slices.Contains(strings.Split(list, ","), word) }

// KillCounts returns the number of OOM kills at each level of a memory cgroup; -1 if it cannot be
// read.
func (g Cgroup) KillCounts() []int {
	counts := make([]int, len(g.Levels))
	for i, dir := range g.Levels {
		counts[i] = -1
		data, _ := os.ReadFile(filepath.Join(dir, g.CounterFile))
		for line := range strings.Lines(string(data)) {
			text, is := strings.CutPrefix(line, "oom_kill ")
			if count, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31); is && err == nil {
				counts[i] = int(count)
			}
		}
	}
	return counts
}

// lowestLimit returns the lowest limit at level and outside it; 0 if there is none. Version 1
// represents "no limit" by the largest number of pages.
func (g Cgroup) lowestLimit(level int) int64 {
	var lowest int64
	for _, dir := range g.Levels[level:] {
		data, _ := os.ReadFile(filepath.Join(dir, g.LimitFile))
		limit, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err == nil && 0 < limit && limit <= math.MaxInt64/2 && (lowest == 0 || limit < lowest) {
			lowest = limit
		}
	}
	return lowest
}

// MemoryLimit returns the lowest memory limit in bytes of this process's cgroup and its ancestors;
// 0 if there is none, or if it is not visible from here. Files below root are read.
func MemoryLimit(root string) int64 { return FindMemoryCgroup(root).lowestLimit(0) }

// KillsSince compares the kill counters with their values before the start of a child. killed is
// set if the child was killed. Counters of outer levels include kills of other steps and jobs: they
// are used only then, and only up to the outermost level that has a limit. It returns nil if no
// process was killed, or if the kernel's counter cannot be read.
func (g Cgroup) KillsSince(before []int, killed bool) *record.OOMReport {
	if len(before) != len(g.Levels) {
		return nil
	}
	for i, count := range g.KillCounts() {
		if i > 0 && (!killed || g.lowestLimit(i) == 0) {
			break
		}
		if before[i] >= 0 && count > before[i] {
			return &record.OOMReport{Kills: count - before[i], Limit: g.lowestLimit(i), Cgroup: g.Levels[i]}
		}
	}
	return nil
}
