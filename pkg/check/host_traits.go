package check

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles"
)

// cpuinfoStart is how much of /proc/cpuinfo has the first processor in it. More
// is not read: the kernel asks each processor for its frequency.
const cpuinfoStart = 4096

// Traits are what the hosts of a job are compared by: x.kernel, x.cpu.
func (h Host) Traits() []Trait {
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
	start := make([]byte, cpuinfoStart)
	n, err := io.ReadFull(file, start)
	if err != nil && n == 0 {
		return ""
	}
	for line := range strings.Lines(string(start[:n])) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
