package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Vendor is the manufacturer of a GPU. The zero Vendor is NVIDIA; NVML describes its GPUs.
type Vendor string

// The vendors other than NVIDIA with GPUs that are recognised in sysfs.
const (
	AMD   Vendor = "amd"
	Intel Vendor = "intel"
)

// Name returns the vendor's display name.
func (v Vendor) Name() string {
	return cmp.Or(map[Vendor]string{AMD: "AMD", Intel: "Intel"}[v], "NVIDIA")
}

// HIPVariable is the environment variable that selects AMD GPUs for programs that use HIP, out of
// those that ROCR shows.
const HIPVariable = "HIP_VISIBLE_DEVICES"

// EnvVariable returns the environment variable that selects the GPUs of the vendor for a program.
func (v Vendor) EnvVariable() string {
	return cmp.Or(map[Vendor]string{AMD: "ROCR_VISIBLE_DEVICES", Intel: "ZE_AFFINITY_MASK"}[v], VisibleDevicesVariable)
}

// OtherGPU is a GPU of a vendor other than NVIDIA, as sysfs describes it. The only facts about its
// health are whether it answers on the PCI bus and whether a driver is bound to it.
type OtherGPU struct {
	Vendor Vendor `json:"vendor"`
	// Reason is empty if this process may use the GPU. Otherwise it is NoPermission, DriverNotLoaded
	// (the GPU is on the PCI bus, but the driver does not list it) or GPUIsLost.
	Reason NVMLReturn `json:"why,omitempty"`
	// in the format of ROCR; empty if the kernel does not provide it
	UUID  string `json:"uuid,omitempty"`
	Bus   string `json:"bus"`
	Model string `json:"model"`
	Tiles int    `json:"tiles,omitempty"` // number of tiles of an Intel GPU with several
}

const (
	kfdNodesDir = "sys/class/kfd/kfd/topology/nodes"
	drmClassDir = "sys/class/drm"
	kfdDevice   = "dev/kfd"

	amdVendorID   = "0x1002"
	intelVendorID = "0x8086"
	// integratedIntelBus is the PCI address of the GPU in an Intel processor, if it has one. Level
	// Zero lists this GPU last.
	integratedIntelBus = "0000:00:02.0"
)

// acceleratorClasses are the prefixes of the PCI classes of 3D controllers, display controllers
// without a screen and processing accelerators. Instinct and Max GPUs have one of the last two.
var acceleratorClasses = []string{"0x0302", "0x0380", "0x1200"}

// FindOtherGPUs returns the GPUs of AMD and Intel that the kernel lists below root. Those that this
// process may use are in the order in which ROCR and Level Zero number them.
func FindOtherGPUs(root string) []OtherGPU {
	sys := sysfs{os.DirFS(root)}
	others := slices.Concat(sys.amdGPUs(root), sys.intelGPUs(root))
	for _, bus := range sys.listNames(pciDevices) {
		vendor := map[string]Vendor{amdVendorID: AMD, intelVendorID: Intel}[sys.readText(path.Join(pciDevices, bus, "vendor"))]
		known := slices.ContainsFunc(others, func(o OtherGPU) bool { return o.Bus == bus })
		if vendor == "" || known || bus == integratedIntelBus || !isAccelerator(sys.readText(path.Join(pciDevices, bus, "class"))) {
			continue
		}
		other := sys.readOtherGPU(vendor, bus)
		switch {
		case other.Reason != "":
		case vendor == AMD && sys.hasHiddenNodes():
			other.Reason = NoPermission
		default:
			other.Reason = DriverNotLoaded
		}
		others = append(others, other)
	}
	return others
}

// NonNVIDIAFacts returns the facts of a node without any sign of NVIDIA.
func NonNVIDIAFacts(root string) Facts {
	return Facts{Version: FactsVersion, Init: LibraryNotFound, OtherGPUs: FindOtherGPUs(root)}
}

// isAccelerator reports whether a PCI class, as in sysfs, is one of acceleratorClasses.
func isAccelerator(class string) bool {
	return slices.ContainsFunc(acceleratorClasses, func(begin string) bool { return strings.HasPrefix(class, begin) })
}

// readOtherGPU returns a GPU with what the PCI bus provides about it.
func (s sysfs) readOtherGPU(vendor Vendor, bus string) OtherGPU {
	device := path.Join(pciDevices, bus)
	number := strings.TrimPrefix(s.readText(path.Join(device, "vendor")), "0x") + ":" + strings.TrimPrefix(s.readText(path.Join(device, "device")), "0x")
	o := OtherGPU{Vendor: vendor, Bus: bus, Model: cmp.Or(s.readText(path.Join(device, "product_name")), vendor.Name()+" "+number)}
	if s.readSlotID(bus) == OffBus {
		o.Reason = GPUIsLost
	}
	return o
}

// amdGPUs returns the GPUs that AMD's compute driver (KFD) lists, in the order of its topology
// nodes. If a cgroup denies access to a GPU, its node cannot be read, and ROCR does not count it. A
// partitioned GPU has several nodes.
func (s sysfs) amdGPUs(root string) (gpus []OtherGPU) {
	nodes := s.listNames(kfdNodesDir)
	slices.SortFunc(nodes, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	for _, node := range nodes {
		// not accessible, or a processor
		if id := s.readText(path.Join(kfdNodesDir, node, "gpu_id")); id == "" || id == "0" {
			continue
		}
		properties := s.readProperties(path.Join(kfdNodesDir, node, "properties"))
		at := properties["location_id"]
		o := s.readOtherGPU(AMD, fmt.Sprintf("%04x:%02x:%02x.%d", properties["domain"], at>>8&0xff, at>>3&0x1f, at&7))
		if id := properties["unique_id"]; id != 0 {
			o.UUID = fmt.Sprintf("GPU-%016x", id)
		}
		if o.Reason == "" && !canAccess(root, kfdDevice, renderDevicePath(fmt.Sprintf("renderD%d", properties["drm_render_minor"]))) {
			o.Reason = NoPermission
		}
		gpus = append(gpus, o)
	}
	return gpus
}

// hasHiddenNodes reports whether KFD has a node that this process may not read.
func (s sysfs) hasHiddenNodes() bool {
	return slices.ContainsFunc(s.listNames(kfdNodesDir), func(node string) bool {
		_, err := fs.ReadFile(s.FS, path.Join(kfdNodesDir, node, "gpu_id"))
		return errors.Is(err, fs.ErrPermission)
	})
}

// readProperties parses a file of KFD with a name and a number per line.
func (s sysfs) readProperties(file string) map[string]uint64 {
	properties := make(map[string]uint64)
	for line := range strings.Lines(s.readText(file)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		properties[name], _ = strconv.ParseUint(value, 10, 64)
	}
	return properties
}

// intelGPUs returns the discrete GPUs that Intel's drivers (xe, i915) list, by PCI address.
func (s sysfs) intelGPUs(root string) (gpus []OtherGPU) {
	for _, name := range s.listNames(drmClassDir) {
		device := path.Join(drmClassDir, name, "device")
		if !strings.HasPrefix(name, "renderD") || s.readText(path.Join(device, "vendor")) != intelVendorID {
			continue
		}
		link, _ := fs.ReadLink(s.FS, device)
		bus := path.Base(link)
		if !matchesPattern("*:??:??.?", bus) || bus == integratedIntelBus {
			continue
		}
		o := s.readOtherGPU(Intel, bus)
		o.Tiles = s.countTiles(bus)
		if o.Reason == "" && !canAccess(root, renderDevicePath(name)) {
			o.Reason = NoPermission
		}
		gpus = append(gpus, o)
	}
	slices.SortFunc(gpus, func(a, b OtherGPU) int { return cmp.Compare(a.Bus, b.Bus) })
	return gpus
}

// countTiles returns the number of tiles of an Intel GPU, or 0 if it has only one. xe has a
// directory for each tile, and i915 one for the GT of each.
func (s sysfs) countTiles(bus string) int {
	for _, pattern := range []string{"tile[0-9]*", "drm/card[0-9]*/gt/gt[0-9]*"} {
		if found, _ := fs.Glob(s.FS, path.Join(pciDevices, bus, pattern)); len(found) > 1 {
			return len(found)
		}
	}
	return 0
}

func renderDevicePath(name string) string { return path.Join("dev/dri", name) }

// canAccess reports whether this process may read and write all of the files below root.
func canAccess(root string, files ...string) bool {
	return !slices.ContainsFunc(files, func(file string) bool {
		return unix.Access(filepath.Join(root, file), unix.R_OK|unix.W_OK) != nil
	})
}

// otherLocalities returns the locations of GPUs of other vendors.
func (s sysfs) otherLocalities(others []OtherGPU, cards []nicPosition) []Locality {
	gpus := make([]Locality, 0, len(others))
	for i, o := range others {
		at := s.devicePosition(path.Join(pciDevices, o.Bus))
		gpus = append(gpus, Locality{
			Index: i, Vendor: o.Vendor, UUID: o.UUID, Reason: o.Reason, Model: o.Model, Tiles: o.Tiles,
			Bus: o.Bus, NUMA: at.numa, CPUs: s.nearCPUs(at), NICs: nearestNICs(at, cards),
		})
	}
	return gpus
}

// gpuVendor returns the vendor of the node's GPUs, which is that of the first one.
func (t Topology) gpuVendor() Vendor {
	if len(t.GPUs) == 0 {
		return ""
	}
	return t.GPUs[0].Vendor
}

// visibleOtherUnits returns the units that this process may use of AMD or Intel GPUs. ROCR and
// Level Zero number only the GPUs that can be opened. lookup returns the values of environment
// variables.
func (t Topology) visibleOtherUnits(lookup func(name string) (value string, set bool)) ([]Unit, error) {
	vendor := t.gpuVendor()
	names := []string{vendor.EnvVariable()}
	if vendor == AMD { // HIP shows a part of what ROCR shows, and reads both variables below
		names = append(names, HIPVariable, VisibleDevicesVariable)
	}
	hierarchy, _ := lookup("ZE_FLAT_DEVICE_HIERARCHY")
	all := t.vendorUnits(vendor, hierarchy != "COMPOSITE")
	for _, name := range names {
		if value, set := lookup(name); set {
			return selectUnits(all, name, value)
		}
	}
	return wholeGPUs(all), nil
}

// wholeGPUs returns the units that are whole GPUs, or tiles with an index of their own; tiles of
// listed GPUs are left out.
func wholeGPUs(units []Unit) []Unit {
	return slices.DeleteFunc(units, func(u Unit) bool { return strings.Contains(u.Name, ".") })
}

// vendorUnits returns the units of a vendor's GPUs that this process may use, with the names that
// programs use. If the hierarchy is flat, which is the default, Level Zero shows each tile of a GPU
// as a device. Otherwise it shows the GPU, and a tile can be selected as GPU.TILE.
func (t Topology) vendorUnits(vendor Vendor, flat bool) (units []Unit) {
	index := 0
	for _, g := range t.GPUs {
		if g.Vendor != vendor || g.Reason != "" {
			continue
		}
		if flat && g.Tiles > 1 {
			for range g.Tiles {
				units = append(units, Unit{g, strconv.Itoa(index)})
				index++
			}
			continue
		}
		units = append(units, Unit{g, strconv.Itoa(index)})
		for tile := range g.Tiles {
			units = append(units, Unit{g, fmt.Sprintf("%d.%d", index, tile)})
		}
		index++
	}
	return units
}

// selectUnits returns the units that the value of an environment variable selects. It returns an
// error if one of them does not exist.
func selectUnits(all []Unit, variable, value string) (units []Unit, err error) {
	if value = strings.TrimSpace(value); value == noDevices || value == "" && variable != Intel.EnvVariable() {
		return nil, nil
	}
	if value == "" { // an empty mask selects all devices
		return wholeGPUs(all), nil
	}
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		at := slices.IndexFunc(all, func(u Unit) bool { return u.Name == entry || u.UUID != "" && strings.EqualFold(u.UUID, entry) })
		if at < 0 {
			return nil, fmt.Errorf("cannot use %s=%s: GPU %s is not one of the %d GPUs that this process may use", variable, value, entry, len(all))
		}
		units = append(units, all[at])
	}
	return units, nil
}
