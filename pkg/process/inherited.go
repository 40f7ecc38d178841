package process

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

const descriptors = "/proc/self/fd"

// CloseInherited closes the files above a descriptor that this process has inherited, such as pipes of the launcher: one that can't be
// killed would hold them open until the node is rebooted. Files of the Go runtime stay.
func CloseInherited(above int) {
	entries, err := os.ReadDir(descriptors)
	if err != nil {
		return
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= above {
			continue
		}
		target, err := os.Readlink(descriptors + "/" + entry.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/sys/fs/cgroup/") {
			continue
		}
		_ = syscall.Close(fd)
	}
}
