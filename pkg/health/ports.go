package health

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// EphemeralPorts returns the first and the last port that the kernel below root assigns
// automatically. It returns zeros if they are unknown.
func EphemeralPorts(root string) [2]int {
	text, _ := os.ReadFile(filepath.Join("/", root, "proc/sys/net/ipv4/ip_local_port_range"))
	var low, high int
	if _, err := fmt.Sscan(string(text), &low, &high); err != nil {
		return [2]int{}
	}
	return [2]int{low, high}
}

// ReservedPorts returns the ranges of ports that the kernel below root excludes from that, each
// with its last port.
func ReservedPorts(root string) (ranges [][2]int) {
	text, _ := os.ReadFile(filepath.Join("/", root, "proc/sys/net/ipv4/ip_local_reserved_ports"))
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		var low, high int
		if n, _ := fmt.Sscanf(part, "%d-%d", &low, &high); n == 1 {
			high = low
		}
		if low > 0 {
			ranges = append(ranges, [2]int{low, high})
		}
	}
	return ranges
}
