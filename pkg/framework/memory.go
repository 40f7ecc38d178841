package framework

import (
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// GrantedMemory returns how many bytes of memory the job may use on this node: the minimum of the
// launcher's limit and of the limits of this process's cgroups. It returns 0 if the job may use all
// memory of the node, or if no limit is known.
func GrantedMemory(environ []string) int64 {
	var node unix.Sysinfo_t
	if unix.Sysinfo(&node) != nil {
		return 0
	}
	return lowestLimit(int64(node.Totalram)*int64(node.Unit), process.MemoryLimit("/"), launcher.GrantedMemory(environ))
}

// lowestLimit returns the minimum of the limits that are not 0, or 0 if none is less than all.
func lowestLimit(all int64, limits ...int64) int64 {
	least := all
	for _, limit := range limits {
		if limit > 0 {
			least = min(least, limit)
		}
	}
	if least == all {
		return 0
	}
	return least
}
