package gpu

import (
	"cmp"
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

// HIPVariable is the environment variable that selects AMD GPUs for programs that use HIP, out of
// those that ROCR shows.
const HIPVariable = "HIP_VISIBLE_DEVICES"

// EnvVariable returns the environment variable that selects the GPUs of the vendor for a program.
func (v Vendor) EnvVariable() string {
	return cmp.Or(map[Vendor]string{AMD: "ROCR_VISIBLE_DEVICES", Intel: "ZE_AFFINITY_MASK"}[v], VisibleDevicesVariable)
}

// OtherGPU is a GPU of a vendor other than NVIDIA, as sysfs describes it. Its health is unknown.
type OtherGPU struct {
	Vendor Vendor     `json:"vendor"`
	Reason NVMLReturn `json:"why,omitempty"` // NoPermission if this process may not use it
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

	intelVendorID = "0x8086"
	// integratedIntelBus is the PCI address of the GPU in an Intel processor, if it has one. Level
	// Zero lists this GPU last.
	integratedIntelBus = "0000:00:02.0"
)

// FindOtherGPUs returns the GPUs that the drivers of AMD and Intel list below root. Those that this
// process may use are in the order in which ROCR and Level Zero number them.
func FindOtherGPUs(root string) []OtherGPU {
	sys := sysfs{os.DirFS(root)}
	return slices.Concat(sys.amdGPUs(root), sys.intelGPUs(root))
}

// IsAnyUsable reports whether this process may use a GPU of NVIDIA, AMD or Intel, according to the
// device files below root.
func IsAnyUsable(root string) bool {
	devices, _ := filepath.Glob(filepath.Join(root, "dev/nvidia[0-9]*")) // the pattern is valid
	isOpen := func(device string) bool { return unix.Access(device, unix.R_OK|unix.W_OK) == nil }
	return slices.ContainsFunc(devices, isOpen) ||
		slices.ContainsFunc(FindOtherGPUs(root), func(o OtherGPU) bool { return o.Reason == "" })
}

// NonNVIDIAFacts returns the facts of a node without any sign of NVIDIA.
func NonNVIDIAFacts(root string) Facts {
	return Facts{Version: FactsVersion, Init: LibraryNotFound, OtherGPUs: FindOtherGPUs(root)}
}

// newOtherGPU returns a GPU with what the PCI bus provides about it. It may be used if this process
// may read and write the files below root.
func (s sysfs) newOtherGPU(vendor Vendor, bus, root string, files ...string) OtherGPU {
	read := func(name string) string { return s.readText(path.Join(pciDevices, bus, name)) }
	number := strings.TrimPrefix(read("vendor"), "0x") + ":" + strings.TrimPrefix(read("device"), "0x")
	name := map[Vendor]string{AMD: "AMD ", Intel: "Intel "}[vendor] + number
	o := OtherGPU{Vendor: vendor, Bus: bus, Model: cmp.Or(read("product_name"), name)}
	for _, file := range files {
		if unix.Access(filepath.Join(root, file), unix.R_OK|unix.W_OK) != nil {
			o.Reason = NoPermission
		}
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
		properties := make(map[string]uint64) // a name and a number per line
		for line := range strings.Lines(s.readText(path.Join(kfdNodesDir, node, "properties"))) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			properties[name], _ = strconv.ParseUint(value, 10, 64)
		}
		at := properties["location_id"]
		bus := fmt.Sprintf("%04x:%02x:%02x.%d", properties["domain"], at>>8&0xff, at>>3&0x1f, at&7)
		o := s.newOtherGPU(AMD, bus, root, kfdDevice, fmt.Sprintf("dev/dri/renderD%d", properties["drm_render_minor"]))
		if id := properties["unique_id"]; id != 0 {
			o.UUID = fmt.Sprintf("GPU-%016x", id)
		}
		gpus = append(gpus, o)
	}
	return gpus
}

// intelGPUs returns the discrete GPUs that Intel's drivers (xe, i915) list, by PCI address.
func (s sysfs) intelGPUs(root string) (gpus []OtherGPU) {
	for _, name := range s.listNames(drmClassDir) {
		device := path.Join(drmClassDir, name, "device")
		link, _ := fs.ReadLink(s.FS, device)
		bus := path.Base(link)
		if !strings.HasPrefix(name, "renderD") || s.readText(path.Join(device, "vendor")) != intelVendorID ||
			!matchesPattern("*:??:??.?", bus) || bus == integratedIntelBus {
			continue
		}
		o := s.newOtherGPU(Intel, bus, root, "dev/dri/"+name)
		// xe has a directory for each tile, and i915 one for the GT of each.
		for _, pattern := range []string{"tile[0-9]*", "drm/card[0-9]*/gt/gt[0-9]*"} {
			if found, _ := fs.Glob(s.FS, path.Join(pciDevices, bus, pattern)); len(found) > 1 {
				o.Tiles = len(found)
			}
		}
		gpus = append(gpus, o)
	}
	slices.SortFunc(gpus, func(a, b OtherGPU) int { return cmp.Compare(a.Bus, b.Bus) })
	return gpus
}

func (s sysfs) otherLocalities(others []OtherGPU, cards []nicPosition) []Locality {
	gpus := make([]Locality, 0, len(others))
	for i, o := range others {
		at := s.locate(o.Bus, cards)
		at.Index, at.Vendor, at.UUID, at.Reason = i, o.Vendor, o.UUID, o.Reason
		at.Model, at.Tiles = o.Model, o.Tiles
		gpus = append(gpus, at)
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

// visibleOtherUnits returns the units that this process may use of AMD or Intel GPUs. lookup returns
// the values of environment variables; the first one that is set selects the units.
func (t Topology) visibleOtherUnits(lookup func(name string) (value string, set bool)) ([]Unit, error) {
	vendor := t.gpuVendor()
	names := []string{vendor.EnvVariable()}
	if vendor == AMD { // HIP shows a part of what ROCR shows, and reads both variables below
		names = append(names, HIPVariable, VisibleDevicesVariable)
	}
	hierarchy, _ := lookup("ZE_FLAT_DEVICE_HIERARCHY")
	all := t.vendorUnits(vendor, hierarchy != "COMPOSITE")
	for _, name := range names {
		if value, set := lookup(name); set && (value != "" || vendor != Intel) { // an empty mask of Intel's selects all
			return selectUnits(all, name, value)
		}
	}
	// whole GPUs, or tiles with an index of their own; tiles of listed GPUs are left out
	return slices.DeleteFunc(all, func(u Unit) bool { return strings.Contains(u.Name, ".") }), nil
}

// vendorUnits returns the units of a vendor's GPUs that this process may use, with the names that
// programs use: ROCR and Level Zero number only the GPUs that can be opened. If the hierarchy is
// flat, which is the default, Level Zero shows each tile of a GPU as a device. Otherwise it shows the
// GPU, and a tile can be selected as GPU.TILE.
func (t Topology) vendorUnits(vendor Vendor, flat bool) (units []Unit) {
	index := 0
	for _, g := range t.GPUs {
		if g.Vendor != vendor || g.Reason != "" {
			continue
		}
		for range max(1, g.Tiles*map[bool]int{true: 1}[flat]) {
			units = append(units, Unit{g, strconv.Itoa(index)})
			index++
		}
		for tile := range g.Tiles {
			if !flat {
				units = append(units, Unit{g, fmt.Sprintf("%d.%d", index-1, tile)})
			}
		}
	}
	return units
}

// selectUnits returns the units that the value of an environment variable selects. It returns an
// error if one of them does not exist.
func selectUnits(all []Unit, variable, value string) (units []Unit, err error) {
	if value = strings.TrimSpace(value); value == noDevices || value == "" {
		return nil, nil
	}
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		at := slices.IndexFunc(all, func(u Unit) bool {
			return u.Name == entry || u.UUID != "" &&
				strings.EqualFold(u.UUID, entry)
		})
		if at < 0 {
			return nil, fmt.Errorf("cannot use %s=%s: GPU %s is not one of the %d GPUs that this "+
				"process may use", variable, value, entry, len(all))
		}
		units = append(units, all[at])
	}
	return units, nil
}
