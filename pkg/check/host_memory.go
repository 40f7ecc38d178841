package check

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// memoryOf returns how much memory this process may use, in bytes: the
// machine's, or the least limit of its cgroup. 0 where it can't be told.
func memoryOf(root string) uint64 {
	memory, limit := machineMemory(root), uint64(process.MemoryLimit(root))
	if memory == 0 || limit > 0 && limit < memory {
		return limit
	}
	return memory
}

func machineMemory(root string) uint64 {
	text, _ := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemTotal:" && fields[2] == "kB" {
			if kib, err := strconv.ParseUint(fields[1], 10, 54); err == nil {
				return kib << 10
			}
		}
	}
	return 0
}
