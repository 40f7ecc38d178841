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

// Variable returns the environment variable that selects the GPUs of the vendor for a program.
func (v Vendor) Variable() string {
	return cmp.Or(map[Vendor]string{AMD: "ROCR_VISIBLE_DEVICES", Intel: "ZE_AFFINITY_MASK"}[v], VisibleVariable)
}

// Other is a GPU of a vendor other than NVIDIA, as sysfs describes it. The only facts about its
// health are whether it answers on the PCI bus and whether a driver is bound to it.
type Other struct {
	Vendor Vendor `json:"vendor"`
	// Why is empty if this process may use the GPU. Otherwise it is NoPermission, DriverNotLoaded (the
	// GPU is on the PCI bus, but the driver does not list it) or GPUIsLost.
	Why   Return `json:"why,omitempty"`
	UUID  string `json:"uuid,omitempty"` // in the format of ROCR; empty if the kernel does not provide it
	Bus   string `json:"bus"`
	Model string `json:"model"`
	Tiles int    `json:"tiles,omitempty"` // number of tiles of an Intel GPU with several
}

const (
	kfdNodes    = "sys/class/kfd/kfd/topology/nodes"
	renderNodes = "sys/class/drm"
	kfdFile     = "dev/kfd"

	amdVendor   = "0x1002"
	intelVendor = "0x8086"
	// integratedIntel is the PCI address of the GPU in an Intel processor, if it has one. Level Zero
	// lists this GPU last.
	integratedIntel = "0000:00:02.0"
)

// acceleratorClasses are the prefixes of the PCI classes of 3D controllers, display controllers
// without a screen and processing accelerators. Instinct and Max GPUs have one of the last two.
var acceleratorClasses = []string{"0x0302", "0x0380", "0x1200"}

// Others returns the GPUs of AMD and Intel that the kernel lists below root. Those that this
// process may use are in the order in which ROCR and Level Zero number them.
func Others(root string) []Other {
	sys := sysfs{os.DirFS(root)}
	others := slices.Concat(sys.amd(root), sys.intel(root))
	for _, bus := range sys.names(pciDevices) {
		vendor := map[string]Vendor{amdVendor: AMD, intelVendor: Intel}[sys.text(path.Join(pciDevices, bus, "vendor"))]
		known := slices.ContainsFunc(others, func(o Other) bool { return o.Bus == bus })
		if vendor == "" || known || bus == integratedIntel || !isAccelerator(sys.text(path.Join(pciDevices, bus, "class"))) {
			continue
		}
		other := sys.other(vendor, bus)
		switch {
		case other.Why != "":
		case vendor == AMD && sys.hidesNodes():
			other.Why = NoPermission
		default:
			other.Why = DriverNotLoaded
		}
		others = append(others, other)
	}
	return others
}

// Unmanaged returns the facts of a node without any sign of NVIDIA.
func Unmanaged(root string) Facts {
	return Facts{Version: FactsVersion, Init: LibraryNotFound, Others: Others(root)}
}

// isAccelerator reports whether a PCI class, as in sysfs, is one of acceleratorClasses.
func isAccelerator(class string) bool {
	return slices.ContainsFunc(acceleratorClasses, func(begin string) bool { return strings.HasPrefix(class, begin) })
}

// other returns a GPU with what the PCI bus provides about it.
func (s sysfs) other(vendor Vendor, bus string) Other {
	device := path.Join(pciDevices, bus)
	number := strings.TrimPrefix(s.text(path.Join(device, "vendor")), "0x") + ":" + strings.TrimPrefix(s.text(path.Join(device, "device")), "0x")
	o := Other{Vendor: vendor, Bus: bus, Model: cmp.Or(s.text(path.Join(device, "product_name")), vendor.Name()+" "+number)}
	if s.slotID(bus) == OffBus {
		o.Why = GPUIsLost
	}
	return o
}

// amd returns the GPUs that AMD's compute driver (KFD) lists, in the order of its topology nodes.
// If a cgroup denies access to a GPU, its node cannot be read, and ROCR does not count it. A
// partitioned GPU has several nodes.
func (s sysfs) amd(root string) (gpus []Other) {
	nodes := s.names(kfdNodes)
	slices.SortFunc(nodes, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	for _, node := range nodes {
		if id := s.text(path.Join(kfdNodes, node, "gpu_id")); id == "" || id == "0" { // not accessible, or a processor
			continue
		}
		properties := s.properties(path.Join(kfdNodes, node, "properties"))
		at := properties["location_id"]
		o := s.other(AMD, fmt.Sprintf("%04x:%02x:%02x.%d", properties["domain"], at>>8&0xff, at>>3&0x1f, at&7))
		if id := properties["unique_id"]; id != 0 {
			o.UUID = fmt.Sprintf("GPU-%016x", id)
		}
		if o.Why == "" && !mayUse(root, kfdFile, renderFile(fmt.Sprintf("renderD%d", properties["drm_render_minor"]))) {
			o.Why = NoPermission
		}
		gpus = append(gpus, o)
	}
	return gpus
}

// hidesNodes reports whether KFD has a node that this process may not read.
func (s sysfs) hidesNodes() bool {
	return slices.ContainsFunc(s.names(kfdNodes), func(node string) bool {
		_, err := fs.ReadFile(s.FS, path.Join(kfdNodes, node, "gpu_id"))
		return errors.Is(err, fs.ErrPermission)
	})
}

// properties parses a file of KFD with a name and a number per line.
func (s sysfs) properties(file string) map[string]uint64 {
	properties := make(map[string]uint64)
	for line := range strings.Lines(s.text(file)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		properties[name], _ = strconv.ParseUint(value, 10, 64)
	}
	return properties
}

// intel returns the discrete GPUs that Intel's drivers (xe, i915) list, by PCI address.
func (s sysfs) intel(root string) (gpus []Other) {
	for _, name := range s.names(renderNodes) {
		device := path.Join(renderNodes, name, "device")
		if !strings.HasPrefix(name, "renderD") || s.text(path.Join(device, "vendor")) != intelVendor {
			continue
		}
		link, _ := fs.ReadLink(s.FS, device)
		bus := path.Base(link)
		if !matches("*:??:??.?", bus) || bus == integratedIntel {
			continue
		}
		o := s.other(Intel, bus)
		o.Tiles = s.tiles(bus)
		if o.Why == "" && !mayUse(root, renderFile(name)) {
			o.Why = NoPermission
		}
		gpus = append(gpus, o)
	}
	slices.SortFunc(gpus, func(a, b Other) int { return cmp.Compare(a.Bus, b.Bus) })
	return gpus
}

// tiles returns the number of tiles of an Intel GPU, or 0 if it has only one. xe has a directory
// for each tile, and i915 one for the GT of each.
func (s sysfs) tiles(bus string) int {
	for _, pattern := range []string{"tile[0-9]*", "drm/card[0-9]*/gt/gt[0-9]*"} {
		if found, _ := fs.Glob(s.FS, path.Join(pciDevices, bus, pattern)); len(found) > 1 {
			return len(found)
		}
	}
	return 0
}

func renderFile(name string) string { return path.Join("dev/dri", name) }

// mayUse reports whether this process may read and write all of the files below root.
func mayUse(root string, files ...string) bool {
	return !slices.ContainsFunc(files, func(file string) bool {
		return unix.Access(filepath.Join(root, file), unix.R_OK|unix.W_OK) != nil
	})
}

// localities returns the locations of GPUs of other vendors.
func (s sysfs) localities(others []Other, cards []card) []Locality {
	gpus := make([]Locality, 0, len(others))
	for i, o := range others {
		at := s.slot(path.Join(pciDevices, o.Bus))
		gpus = append(gpus, Locality{
			Index: i, Vendor: o.Vendor, UUID: o.UUID, Why: o.Why, Model: o.Model, Tiles: o.Tiles,
			Bus: o.Bus, NUMA: at.numa, CPUs: s.cpus(at), NICs: nearest(at, cards),
		})
	}
	return gpus
}

// vendor returns the vendor of the node's GPUs, which is that of the first one.
func (t Topology) vendor() Vendor {
	if len(t.GPUs) == 0 {
		return ""
	}
	return t.GPUs[0].Vendor
}

// others returns the units that this process may use of AMD or Intel GPUs. ROCR and Level Zero
// number only the GPUs that can be opened. lookup returns the values of environment variables.
func (t Topology) others(lookup func(name string) (value string, set bool)) ([]Unit, error) {
	vendor := t.vendor()
	names := []string{vendor.Variable()}
	if vendor == AMD { // HIP shows a part of what ROCR shows, and reads both variables below
		names = append(names, HIPVariable, VisibleVariable)
	}
	hierarchy, _ := lookup("ZE_FLAT_DEVICE_HIERARCHY")
	all := t.unitsOf(vendor, hierarchy != "COMPOSITE")
	for _, name := range names {
		if value, set := lookup(name); set {
			return chosen(all, name, value)
		}
	}
	return whole(all), nil
}

// whole returns the units that are whole GPUs, or tiles with an index of their own; tiles of listed
// GPUs are left out.
func whole(units []Unit) []Unit {
	return slices.DeleteFunc(units, func(u Unit) bool { return strings.Contains(u.Name, ".") })
}

// unitsOf returns the units of a vendor's GPUs that this process may use, with the names that
// programs use. If the hierarchy is flat, which is the default, Level Zero shows each tile of a GPU
// as a device. Otherwise it shows the GPU, and a tile can be selected as GPU.TILE.
func (t Topology) unitsOf(vendor Vendor, flat bool) (units []Unit) {
	index := 0
	for _, g := range t.GPUs {
		if g.Vendor != vendor || g.Why != "" {
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

// chosen returns the units that the value of an environment variable selects. It returns an error
// if one of them does not exist.
func chosen(all []Unit, variable, value string) (units []Unit, err error) {
	if value = strings.TrimSpace(value); value == noDevices || value == "" && variable != Intel.Variable() {
		return nil, nil
	}
	if value == "" { // an empty mask selects all devices
		return whole(all), nil
	}
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		at := slices.IndexFunc(all, func(u Unit) bool { return u.Name == entry || u.UUID != "" && strings.EqualFold(u.UUID, entry) })
		if at < 0 {
			return nil, fmt.Errorf("cannot use %s=%s: there is no GPU %s among the %d that this process may use", variable, value, entry, len(all))
		}
		units = append(units, all[at])
	}
	return units, nil
}
