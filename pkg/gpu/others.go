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

// Vendor is the manufacturer of a GPU. The zero Vendor is NVIDIA, whose GPUs NVML describes.
type Vendor string

// The vendors other than NVIDIA whose GPUs are recognised by what the kernel exports.
const (
	AMD   Vendor = "amd"
	Intel Vendor = "intel"
)

// Name returns the vendor's name for people.
func (v Vendor) Name() string {
	return cmp.Or(map[Vendor]string{AMD: "AMD", Intel: "Intel"}[v], "NVIDIA")
}

// HIPVariable selects GPUs of AMD's for programs that use HIP, among those that ROCR shows.
const HIPVariable = "HIP_VISIBLE_DEVICES"

// Variable returns the environment variable that selects the GPUs of the vendor for a program.
func (v Vendor) Variable() string {
	return cmp.Or(map[Vendor]string{AMD: "ROCR_VISIBLE_DEVICES", Intel: "ZE_AFFINITY_MASK"}[v], VisibleVariable)
}

// Other is a GPU of a vendor other than NVIDIA, as the kernel describes it in sysfs. Nothing is
// known of its health except whether it answers on the PCI bus and whether its driver has it.
type Other struct {
	Vendor Vendor `json:"vendor"`
	// Why is empty if this process may use the GPU. Otherwise it is NoPermission, DriverNotLoaded
	// (the GPU is on the PCI bus, and its driver does not have it) or GPUIsLost.
	Why   Return `json:"why,omitempty"`
	UUID  string `json:"uuid,omitempty"` // as ROCR names it; empty if the kernel does not report it
	Bus   string `json:"bus"`
	Model string `json:"model"`
	Tiles int    `json:"tiles,omitempty"` // of an Intel GPU that has several
}

const (
	kfdNodes    = "sys/class/kfd/kfd/topology/nodes"
	renderNodes = "sys/class/drm"
	kfdFile     = "dev/kfd"

	amdVendor   = "0x1002"
	intelVendor = "0x8086"
	// integratedIntel is the address of the GPU in every Intel processor that has one. Level Zero
	// lists it behind all others.
	integratedIntel = "0000:00:02.0"
)

// acceleratorClasses begin the PCI classes of 3D controllers, display controllers without a screen
// and processing accelerators. Instinct and Max GPUs have one of the last two.
var acceleratorClasses = []string{"0x0302", "0x0380", "0x1200"}

// Others returns the GPUs of AMD and Intel that the kernel exports below root, in the order in
// which ROCR and Level Zero number those that this process may use.
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

// Unmanaged returns the facts of a node on which nothing shows NVIDIA.
func Unmanaged(root string) Facts {
	return Facts{Version: FactsVersion, Init: LibraryNotFound, Others: Others(root)}
}

func isAccelerator(class string) bool {
	return slices.ContainsFunc(acceleratorClasses, func(begin string) bool { return strings.HasPrefix(class, begin) })
}

// other returns what the PCI bus tells about a GPU.
func (s sysfs) other(vendor Vendor, bus string) Other {
	device := path.Join(pciDevices, bus)
	number := strings.TrimPrefix(s.text(path.Join(device, "vendor")), "0x") + ":" + strings.TrimPrefix(s.text(path.Join(device, "device")), "0x")
	o := Other{Vendor: vendor, Bus: bus, Model: cmp.Or(s.text(path.Join(device, "product_name")), vendor.Name()+" "+number)}
	if s.slotID(bus) == OffBus {
		o.Why = GPUIsLost
	}
	return o
}

// amd returns the GPUs that AMD's compute driver (KFD) has, in the order of its nodes. A node whose
// GPU a cgroup withholds cannot be read, and ROCR does not count it. A GPU that is partitioned is
// several nodes.
func (s sysfs) amd(root string) (gpus []Other) {
	nodes := s.names(kfdNodes)
	slices.SortFunc(nodes, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	for _, node := range nodes {
		if id := s.text(path.Join(kfdNodes, node, "gpu_id")); id == "" || id == "0" { // withheld, or a processor
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

// properties reads a file of KFD's: a name and a number per line.
func (s sysfs) properties(file string) map[string]uint64 {
	properties := make(map[string]uint64)
	for line := range strings.Lines(s.text(file)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		properties[name], _ = strconv.ParseUint(value, 10, 64)
	}
	return properties
}

// intel returns the discrete GPUs that Intel's drivers (xe, i915) have, by PCI address.
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

// tiles returns how many tiles an Intel GPU has if there are several: xe has a folder for each, and
// i915 a folder for the GT of each.
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

// localities returns where the GPUs sit.
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

// vendor returns the vendor of the node's GPUs: that of the first.
func (t Topology) vendor() Vendor {
	if len(t.GPUs) == 0 {
		return ""
	}
	return t.GPUs[0].Vendor
}

// others returns what this process may use of GPUs that are not NVIDIA's. ROCR and Level Zero
// number only those that can be opened.
func (t Topology) others(lookup func(name string) (value string, set bool)) ([]Unit, error) {
	vendor := t.vendor()
	names := []string{vendor.Variable()}
	if vendor == AMD { // HIP shows a part of what ROCR shows, and reads both names
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

// whole returns the units without the tiles of GPUs that are among them.
func whole(units []Unit) []Unit {
	return slices.DeleteFunc(units, func(u Unit) bool { return strings.Contains(u.Name, ".") })
}

// unitsOf returns the GPUs of a vendor that this process may use, by the names that programs give
// them. Level Zero shows each tile of a GPU as a device of its own if the hierarchy is flat, which
// is its default; otherwise a tile can be named besides the GPU that it is part of.
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

// chosen returns the units that the value of a variable lists.
func chosen(all []Unit, variable, value string) (units []Unit, err error) {
	if value = strings.TrimSpace(value); value == noDevices || value == "" && variable != Intel.Variable() {
		return nil, nil
	}
	if value == "" { // an empty mask masks nothing
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
