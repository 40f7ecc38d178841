package check

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// machine is the machine itself.
type machine struct{}

var _ kernel = machine{}

func (machine) Space(path string) (signal.Space, error) { return signal.SpaceOf(path) }

// Prove removes the file before it writes, so that nothing stays behind where the write never returns.
func (machine) Prove(dir string) error {
	file, err := os.CreateTemp(dir, ".bringupd-check-*")
	if err != nil {
		return err
	}
	err = os.Remove(file.Name())
	if err == nil {
		_, err = file.Write([]byte{'.'})
	}
	if err == nil {
		err = file.Sync()
	}
	// Some file systems have nothing to sync, and say so.
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

func (machine) Limit(resource int) (limit unix.Rlimit, err error) {
	return limit, unix.Getrlimit(resource, &limit)
}

// memoryOf returns how much memory this process may use, in bytes: the
// machine's, or the least limit of its cgroup. 0 where it can't be told.
func memoryOf(root string) uint64 {
	memory, limit := machineMemory(root), uint64(process.MemoryLimit(root))
	if memory == 0 || limit > 0 && limit < memory {
		return limit
	}
	return memory
}

func machineMemory(root string) (bytes uint64) {
	text, err := readText(root, "proc/meminfo")
	if _, bad := fmt.Sscanf(text, "MemTotal: %d kB", &bytes); err != nil || bad != nil {
		return 0
	}
	return bytes << 10
}

// cpuinfoStart is how much of /proc/cpuinfo has the first processor in it. More
// is not read: the kernel asks each processor for its frequency.
const cpuinfoStart = 4096

// Traits are what the hosts of a job are compared by: x.kernel, x.cpu.
func (h *Host) Traits() []Trait {
	root := h.path("")
	var traits []Trait
	if release, err := readText(root, "proc/sys/kernel/osrelease"); err == nil {
		traits = append(traits, Trait{ID: Kernel, Value: release})
	}
	online, _ := readText(root, "sys/devices/system/cpu/online")
	if n := countCPUs(online); n > 0 {
		traits = append(traits, Trait{ID: CPU, Value: strings.TrimSpace(fmt.Sprintf("%d %s", n, modelOf(root)))})
	}
	return traits
}

// countCPUs counts a list as the kernel writes it: 0-3,8. 0 where it is none.
func countCPUs(list string) int {
	all, err := roles.ExpandNodeList("["+list+"]", 0)
	if err != nil {
		return 0
	}
	return len(all)
}

// modelOf returns the name of the first processor's model; empty where the kernel has none, as on ARM.
func modelOf(root string) string {
	file, err := os.Open(filepath.Join(root, "proc/cpuinfo"))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(io.LimitReader(file, cpuinfoStart))
	for lines.Scan() {
		if name, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
