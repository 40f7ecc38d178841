package process

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

const fdDirectory = "/proc/self/fd"

// CloseInheritedFiles closes the inherited open files with descriptors greater than above, such as
// pipes of the launcher: a process that cannot be killed would keep them open until the node is
// rebooted. It does not close files of the Go runtime.
func CloseInheritedFiles(above int) {
	entries, err := os.ReadDir(fdDirectory)
	if err != nil {
		return
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= above {
			continue
		}
		target, err := os.Readlink(fdDirectory + "/" + entry.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/sys/fs/cgroup/") {
			continue
		}
		_ = syscall.Close(fd)
	}
}
