package gpu

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// The kinds of signs that FindNVIDIASigns returns.
const (
	signDevice = "device file"
	signDriver = "kernel module"
	signBus    = "PCI device"
)

// FindNVIDIASigns returns the signs of an NVIDIA GPU, or of its driver, on this machine: device
// files, the kernel module and PCI devices. It returns nil if there are none. root is "/", or a
// directory that replaces it. It neither uses NVML nor starts a process, so it may be called on any
// machine.
func FindNVIDIASigns(root string) (signs []string) {
	sys := sysfs{os.DirFS(root)}
	for _, name := range sys.deviceFiles() {
		signs = append(signs, fmt.Sprintf("%s /dev/%s", signDevice, name))
	}
	if version := sys.driverVersion(); version != "" {
		signs = append(signs, fmt.Sprintf("%s %s", signDriver, version))
	}
	for _, bus := range sys.gpuAddresses() {
		signs = append(signs, fmt.Sprintf("%s %s", signBus, bus))
	}
	return signs
}

// HasOnlyPCIDevices reports whether the signs, which FindNVIDIASigns has returned, are only PCI
// devices: there is a GPU, but neither a driver nor a device file for it.
func HasOnlyPCIDevices(signs []string) bool {
	return len(signs) > 0 && !slices.ContainsFunc(signs,
		func(sign string) bool { return !strings.HasPrefix(sign, signBus+" ") })
}

// deviceFiles returns the device files of GPUs and of the driver: nvidia0, nvidiactl.
func (s sysfs) deviceFiles() (names []string) {
	for _, name := range s.listNames("dev") {
		number, isNVIDIA := strings.CutPrefix(name, "nvidia")
		if isNVIDIA && (number == "ctl" || number != "" && strings.Trim(number, "0123456789") == "") {
			names = append(names, name)
		}
	}
	return names
}

// driverVersion returns the version of the loaded kernel module, "unknown" if it cannot be parsed,
// or an empty string if no module is loaded.
func (s sysfs) driverVersion() string {
	// For example "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan …".
	line, _, _ := strings.Cut(s.readText("proc/driver/nvidia/version"), "\n")
	for word := range strings.FieldsSeq(line) {
		if strings.Trim(word, "0123456789.") == "" && strings.Contains(word, ".") {
			return word
		}
	}
	if line != "" {
		return "unknown"
	}
	return ""
}

const (
	nvidiaVendorID = "0x10de"
	gpuClasses     = "0x030[02]*" // display controllers, with and without a display
)

// gpuAddresses returns the PCI addresses of NVIDIA's GPUs (0000:3b:00.0), sorted. NVML has the same
// order. A GPU that has fallen off the bus is in the list until an administrator removes it.
func (s sysfs) gpuAddresses() []string {
	if s.lacksNVIDIA() {
		return nil
	}
	return slices.DeleteFunc(s.listNames(pciDevices), func(bus string) bool {
		device := path.Join(pciDevices, bus)
		return s.readText(path.Join(device, "vendor")) != nvidiaVendorID ||
			!matchesPattern(gpuClasses, s.readText(path.Join(device, "class")))
	})
}

// lacksNVIDIA reports that the kernel's list of all PCI devices has none of NVIDIA. It is one file,
// and a node without GPUs may have hundreds of devices. It returns false if there is no such list.
func (s sysfs) lacksNVIDIA() bool {
	list, err := fs.ReadFile(s, "proc/bus/pci/devices")
	if err != nil || len(list) == 0 {
		return false
	}
	for line := range strings.Lines(string(list)) {
		// For example "3b00\t10de2330\t1f\t…": bus and function, vendor and device.
		if fields := strings.Fields(line); len(fields) < 2 ||
			"0x"+fields[1][:min(4, len(fields[1]))] == nvidiaVendorID {
			return false
		}
	}
	return true
}

// readSlots returns NVIDIA's GPUs on the bus, with the first bytes of their configuration space.
// All users may read these bytes, even in a container.
func (s sysfs) readSlots() (slots []PCISlot) {
	for _, bus := range s.gpuAddresses() {
		slots = append(slots, PCISlot{Bus: bus, ID: s.readSlotID(bus)})
	}
	return slots
}

// readSlotID returns the vendor and device ID of a PCI device, in the format of PCISlot.ID, or an
// empty string if they cannot be read.
func (s sysfs) readSlotID(bus string) string {
	file, err := s.Open(path.Join(pciDevices, bus, "config"))
	if err != nil {
		return ""
	}
	defer file.Close()
	var id [4]byte
	if _, err := io.ReadFull(file, id[:]); err != nil {
		return ""
	}
	return fmt.Sprintf("%02x%02x:%02x%02x", id[1], id[0], id[3], id[2]) // both IDs are little-endian
}

// The directories of sysfs that are read.
const (
	pciDevices    = "sys/bus/pci/devices"
	rdmaDevices   = "sys/class/infiniband"
	netInterfaces = "sys/class/net"
)

type pciPosition struct {
	bus        string   // its own address; empty: not a PCI device
	hostBridge string   // the host bridge: pci0000:50
	busPath    []string // the addresses on the path from there to the device, its own last
	numa       int      // -1: none
}

type nicPosition struct {
	name     string
	position pciPosition
}

// nearestNICs returns the network cards with the smallest distance from a device. The list is empty
// if there is no card, or if the position of the device is unknown.
func nearestNICs(from pciPosition, cards []nicPosition) []NIC {
	at := map[Distance][]NIC{}
	for _, c := range cards {
		d := pciDistance(from, c.position)
		at[d] = append(at[d], NIC{Name: c.name, Bus: c.position.bus, Distance: d})
	}
	for _, d := range distances {
		if from.bus != "" && len(at[d]) > 0 {
			return at[d]
		}
	}
	return []NIC{}
}

// pciDistance returns how far two devices are apart.
func pciDistance(a, b pciPosition) Distance {
	common, shorter := 0, min(len(a.busPath), len(b.busPath))
	for common < shorter && a.busPath[common] == b.busPath[common] {
		common++
	}
	switch {
	case a.hostBridge != b.hostBridge && a.numa == b.numa:
		return SameNUMA
	case a.hostBridge != b.hostBridge:
		return BetweenNUMAs
	case common == 0:
		return HostBridge
	// Below the common part of their paths there are only a port of the same switch, and the device.
	case max(len(a.busPath), len(b.busPath))-common <= 2:
		return OneSwitch
	}
	return SeveralSwitches
}

// sysfs reads files of the kernel about devices, in /sys, /proc and /dev.
type sysfs struct{ fs.FS }

// networkCards returns the network cards: the RDMA devices, as NCCL sees them, or, on a node
// without any, the network interfaces of PCI devices.
func (s sysfs) networkCards() []nicPosition {
	cards := s.classDevices(rdmaDevices)
	if len(cards) == 0 {
		cards = s.classDevices(netInterfaces)
	}
	return cards
}

func (s sysfs) classDevices(class string) []nicPosition {
	var cards []nicPosition
	for _, name := range s.listNames(class) {
		if at := s.devicePosition(path.Join(class, name)); at.bus != "" {
			cards = append(cards, nicPosition{name: name, position: at})
		}
	}
	slices.SortFunc(cards, func(a, b nicPosition) int {
		return cmp.Or(cmp.Compare(a.position.bus, b.position.bus), cmp.Compare(a.name, b.name))
	})
	return cards
}

// RDMADevice is an RDMA device.
type RDMADevice struct {
	Name string `json:"name"` // for example mlx5_0
	Bus  string `json:"bus"`
	NUMA int    `json:"numa"` // -1: none, or unknown
	// Ports are the numbers of the ports with a link. It is empty if all ports are down.
	Ports []int `json:"ports"`
}

// FindRDMADevices returns the RDMA devices of the node, by PCI address. root is "/", or a directory
// that replaces it.
func FindRDMADevices(root string) (all []RDMADevice) {
	sys := sysfs{os.DirFS(root)}
	for _, c := range sys.classDevices(rdmaDevices) {
		all = append(all, RDMADevice{Name: c.name, Bus: c.position.bus, NUMA: c.position.numa,
			Ports: sys.linkedPorts(c.name)})
	}
	return all
}

// linkedPorts returns the numbers of the ports of an RDMA device that have a link. If the device
// lists no ports, it is assumed to have port 1.
func (s sysfs) linkedPorts(card string) []int {
	folder := path.Join(rdmaDevices, card, "ports")
	names := s.listNames(folder)
	if len(names) == 0 {
		return []int{1}
	}
	linked := []int{}
	for _, name := range names {
		number, err := strconv.Atoi(name)
		// For example "4: ACTIVE".
		if state, _, _ := strings.Cut(s.readText(path.Join(folder, name, "state")), ":"); err == nil && state == "4" {
			linked = append(linked, number)
		}
	}
	return linked
}

// devicePosition returns the position of the device with this name in sysfs. The name is a symbolic
// link to a path through the buses above the device; the path of a network interface continues
// below its PCI device.
func (s sysfs) devicePosition(name string) pciPosition {
	at := pciPosition{numa: -1}
	link, _ := fs.ReadLink(s.FS, name)
	for part := range strings.SplitSeq(link, "/") {
		switch {
		case matchesPattern("pci*:??", part):
			at.hostBridge, at.busPath = part, nil
		case at.hostBridge != "" && matchesPattern("*:??:??.?", part):
			at.busPath = append(at.busPath, part)
		}
	}
	if len(at.busPath) == 0 {
		return at
	}
	at.bus = at.busPath[len(at.busPath)-1]
	if numa, err := strconv.Atoi(s.readText(path.Join(pciDevices, at.bus, "numa_node"))); err == nil {
		at.numa = numa
	}
	return at
}

func matchesPattern(pattern, text string) bool {
	is, _ := path.Match(pattern, text)
	return is
}

// nearCPUs returns the list of the CPUs near a device, in the kernel's format: the device's own
// list or, if the firmware provides none, that of its NUMA node.
func (s sysfs) nearCPUs(at pciPosition) string {
	if at.bus == "" {
		return ""
	}
	list := s.readText(path.Join(pciDevices, at.bus, "local_cpulist"))
	if list == "" && at.numa >= 0 {
		list = s.readText(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", at.numa))
	}
	return list
}

// listNames returns the sorted names of the entries of a directory, or nil if it cannot be read.
func (s sysfs) listNames(folder string) []string {
	entries, _ := fs.ReadDir(s.FS, folder)
	return textutil.MapSlice(entries, func(entry fs.DirEntry) string { return entry.Name() })
}

// readText returns the content of a file without surrounding white space, or an empty string if it
// cannot be read.
func (s sysfs) readText(name string) string {
	text, _ := fs.ReadFile(s.FS, name)
	return strings.TrimSpace(string(text))
}
