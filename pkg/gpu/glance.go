package gpu

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	driverGPUs   = "proc/driver/nvidia/gpus" // a folder a GPU, by its PCI address
	capabilities = "proc/driver/nvidia/capabilities"
	uuidLength   = len("GPU-8f6f4f3a-0000-0000-0000-000000000000")
)

// Glance is where the GPUs of this node sit as the kernel tells it, in a fraction of the time that NVML takes to begin:
// a rank that a launcher has started waits for it. Of the topology it lacks the NVLink domains. Root is "/", or what stands
// for it. ok is false where only NVML can tell: there is no driver, one that says less, instances that a GPU is cut into
// (MIG), or no GPU that this process may use.
func Glance(root string) (t Topology, ok bool) {
	sys := sysfs{os.DirFS(root)}
	facts := Facts{Version: FactsVersion, Init: Success}
	for _, bus := range sys.names(driverGPUs) { // in the order of the bus, as NVML has them
		told := sys.told(path.Join(driverGPUs, bus, "information"))
		if cmp.Or(told["GPU Excluded"], told["Blacklisted"]) == "Yes" { // by the driver's settings: NVML has no such GPU
			continue
		}
		minor, err := strconv.Atoi(told["Device Minor"])
		uuid := told["GPU UUID"]
		if err != nil || len(uuid) != uuidLength || strings.Contains(uuid, "?") || sys.cut(minor) {
			return Topology{}, false
		}
		g := GPU{Index: len(facts.GPUs), Handle: NoPermission, UUID: read(uuid), Bus: read(bus), Name: read(told["Model"])}
		// A cgroup that keeps a GPU from this process does so here, too, and nothing wakes the GPU up.
		if unix.Access(path.Join(root, fmt.Sprintf("dev/nvidia%d", minor)), unix.R_OK|unix.W_OK) == nil {
			g.Handle, ok = Success, true
		}
		facts.GPUs = append(facts.GPUs, g)
	}
	if !ok {
		return Topology{}, false
	}
	return Topologize(root, facts), true
}

// told are the lines of a file, NAME: VALUE.
func (s sysfs) told(file string) map[string]string {
	told := make(map[string]string)
	for line := range strings.Lines(s.text(file)) {
		name, value, _ := strings.Cut(line, ":")
		told[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return told
}

// cut tells whether a GPU has instances.
func (s sysfs) cut(minor int) bool {
	for _, name := range s.names(path.Join(capabilities, fmt.Sprintf("gpu%d", minor), "mig")) {
		if strings.HasPrefix(name, "gi") {
			return true
		}
	}
	return false
}
