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
	driverGPUDir        = "proc/driver/nvidia/gpus" // one directory per GPU, by PCI address
	driverCapabilityDir = "proc/driver/nvidia/capabilities"
	uuidLength          = len("GPU-8f6f4f3a-0000-0000-0000-000000000000")
)

// QuickTopology returns the topology of this node's GPUs from files of the kernel. That is much
// faster than initialising NVML; a rank that was started by a launcher waits for it. The result
// lacks the NVLink domains. root is "/", or a directory that replaces it. ok is false if NVML is
// needed: if there is no driver, the driver provides less in these files, a GPU is partitioned
// (MIG), or this process may use no GPU.
func QuickTopology(root string) (t Topology, ok bool) {
	sys := sysfs{os.DirFS(root)}
	facts := Facts{Version: FactsVersion, Init: Success}
	for _, bus := range sys.listNames(driverGPUDir) { // in bus order, which is NVML's order
		values := sys.readKeyValues(path.Join(driverGPUDir, bus, "information"))
		// excluded by a setting of the driver, and so missing in NVML, too
		if cmp.Or(values["GPU Excluded"], values["Blacklisted"]) == "Yes" {
			continue
		}
		minor, err := strconv.Atoi(values["Device Minor"])
		uuid := values["GPU UUID"]
		if err != nil || len(uuid) != uuidLength || strings.Contains(uuid, "?") || sys.isPartitioned(minor) {
			return Topology{}, false
		}
		g := GPU{Index: len(facts.GPUs), Handle: NoPermission, UUID: newReading(uuid),
			Bus: newReading(bus), Name: newReading(values["Model"])}
		// This call fails if a cgroup denies access to the GPU. It does not initialise the GPU.
		if unix.Access(path.Join(root, fmt.Sprintf("dev/nvidia%d", minor)), unix.R_OK|unix.W_OK) == nil {
			g.Handle, ok = Success, true
		}
		facts.GPUs = append(facts.GPUs, g)
	}
	if !ok {
		return Topology{}, false
	}
	return BuildTopology(root, facts), true
}

// readKeyValues parses a file with lines of the form NAME: VALUE.
func (s sysfs) readKeyValues(file string) map[string]string {
	values := make(map[string]string)
	for line := range strings.Lines(s.readText(file)) {
		name, value, _ := strings.Cut(line, ":")
		values[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return values
}

func (s sysfs) isPartitioned(minor int) bool {
	for _, name := range s.listNames(path.Join(driverCapabilityDir, fmt.Sprintf("gpu%d", minor), "mig")) {
		if strings.HasPrefix(name, "gi") {
			return true
		}
	}
	return false
}
