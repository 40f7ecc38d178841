package check

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryOf returns how much memory this process may use, in bytes: the
// machine's, or the least limit of its cgroup. 0 where it can't be told.
func memoryOf(root string) uint64 {
	memory := uint64(math.MaxUint64)
	if text, err := os.ReadFile(filepath.Join(root, "proc/meminfo")); err == nil {
		memory = parseMemTotal(string(text), memory)
	}
	if text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup")); err == nil {
		for _, group := range parseGroups(string(text)) {
			memory = min(memory, group.least(root))
		}
	}
	if memory == math.MaxUint64 {
		return 0
	}
	return memory
}

func parseMemTotal(text string, otherwise uint64) uint64 {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			if kib, err := strconv.ParseUint(fields[1], 10, 54); err == nil {
				return kib << 10
			}
		}
	}
	return otherwise
}

// group is a cgroup that may limit memory.
type group struct {
	mount string // of its hierarchy, below the root
	path  string // in the hierarchy
	limit string // the name of the file with the limit
}

// parseGroups reads /proc/self/cgroup. Both versions may be there at once.
func parseGroups(text string) []group {
	var groups []group
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		switch {
		case len(fields) != 3:
		case fields[0] == "0" && fields[1] == "":
			groups = append(groups, group{"sys/fs/cgroup", fields[2], "memory.max"},
				group{"sys/fs/cgroup/unified", fields[2], "memory.max"})
		case strings.Contains(","+fields[1]+",", ",memory,"):
			groups = append(groups, group{"sys/fs/cgroup/memory", fields[2], "memory.limit_in_bytes"})
		}
	}
	return groups
}

// least returns the least limit of the group and of those above it. In a
// container the path is the host's, and what is mounted is the group itself:
// the way up ends there in any case.
func (g group) least(root string) uint64 {
	least := uint64(math.MaxUint64)
	for dir := filepath.Join("/", g.path); ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(root, g.mount, dir, g.limit))
		if limit, bad := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil {
			least = min(least, limit)
		}
		if dir == "/" {
			return least
		}
	}
}
