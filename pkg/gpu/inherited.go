package gpu

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

const descriptors = "/proc/self/fd"

// closeInherited closes what this process was given beside its three streams,
// such as the pipes of the launcher: a child that can't be killed would hold
// them as long as the node is up. What the Go runtime has opened stays.
func closeInherited() {
	entries, err := os.ReadDir(descriptors)
	if err != nil {
		return
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= 2 {
			continue
		}
		target, err := os.Readlink(descriptors + "/" + entry.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/sys/fs/cgroup/") {
			continue
		}
		_ = syscall.Close(fd)
	}
}
