package health

import (
	"fmt"
	"os"
	"path/filepath"
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
