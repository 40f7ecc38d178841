package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Unit is a GPU, or an instance or a tile of one, that can be assigned to one rank alone.
type Unit struct {
	Locality // location of the GPU
	// Name identifies the unit in the environment variable of its vendor, which is
	// CUDA_VISIBLE_DEVICES for NVIDIA. It is CUDA's index, or a UUID if the index could be
	// misunderstood, because a program that counts like NVML would take it for another GPU's.
	Name string
}

// VisibleUnits returns the units that this process may use, in CUDA's order. lookup returns the
// values of environment variables: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER. GPUs that do not
// answer are left out. If the GPUs are unknown, the listed ones are returned, without a location.
// VisibleUnits returns an error if the list is invalid, or if a listed GPU is missing.
//
// GPUs of other vendors are selected by the variable of their vendor.
func (t Topology) VisibleUnits(lookup func(name string) (value string, set bool)) ([]Unit, error) {
	if t.gpuVendor() != "" {
		return t.visibleOtherUnits(lookup)
	}
	value, listed := lookup(VisibleDevicesVariable)
	if !listed {
		order, _ := lookup("CUDA_DEVICE_ORDER")
		return t.allUnits(order == "PCI_BUS_ID"), nil
	}
	selectors, err := ParseVisibleDevices(value)
	if err != nil {
		return nil, err
	}
	var units []Unit
	for _, s := range selectors {
		of, err := t.unitsForSelector(s)
		if err != nil {
			return nil, fmt.Errorf("cannot use %s=%s: %v", VisibleDevicesVariable,
				textutil.TruncateText(value, maxShownText), err)
		}
		units = append(units, of...)
	}
	return units, nil
}

// allUnits returns all units that this process may use. If there are several models, CUDA's order
// is another than NVML's, unless byBus is set; the GPUs are then identified by UUID.
func (t Topology) allUnits(byBus bool) (units []Unit) {
	models := map[string]bool{}
	for _, g := range t.countedGPUs() {
		models[g.Model] = true
	}
	for i, g := range t.countedGPUs() {
		units = append(units, g.assignableUnits(i, !byBus && len(models) > 1)...)
	}
	return units
}

// countedGPUs returns the GPUs to which CUDA assigns indices: those that this process has
// permission to access.
func (t Topology) countedGPUs() []Locality {
	return slices.DeleteFunc(slices.Clone(t.GPUs), func(g Locality) bool { return g.Reason == NoPermission })
}

// assignableUnits returns the units of a GPU with the given index in CUDA: its instances, or the
// GPU itself. The GPU is identified by its UUID if byUUID is set, or if NVML has another index for
// it.
func (l Locality) assignableUnits(index int, byUUID bool) (units []Unit) {
	if l.Reason != "" {
		return nil
	}
	for _, instance := range l.Instances {
		units = append(units, Unit{l, instance})
	}
	if l.Instances != nil {
		return units
	}
	if l.UUID != "" && (byUUID || l.Index != index) {
		return []Unit{{l, l.UUID}}
	}
	return []Unit{{l, strconv.Itoa(index)}}
}

func (t Topology) unitsForSelector(s Selector) ([]Unit, error) {
	counted := t.countedGPUs()
	switch {
	case t.GPUs == nil:
		return []Unit{{Locality{Index: s.Index, NUMA: -1, NICs: []NIC{}}, s.String()}}, nil
	case s.UUID == "" && s.Index < len(counted):
		return counted[s.Index].assignableUnits(s.Index, false), nil
	case s.UUID == "":
		return nil, fmt.Errorf("there is no GPU %d, only %d %s", s.Index, len(counted),
			textutil.PluralForm(len(counted), "GPU"))
	}
	var found []Unit
	matches := 0
	for i, g := range counted {
		of, n := g.matchSelector(s, i)
		found, matches = append(found, of...), matches+n
	}
	switch matches {
	case 0:
		return nil, fmt.Errorf("no GPU of this node has the UUID %s", textutil.TruncateText(s.UUID, maxShownText))
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("%d GPUs have a UUID that begins with %s: give more of the UUID",
		matches, textutil.TruncateText(s.UUID, maxShownText))
}

// matchSelector returns the units of a GPU that the UUID in an entry, or its prefix, selects, and
// the number of matches.
func (l Locality) matchSelector(s Selector, index int) (units []Unit, named int) {
	if s.MatchesPrefix(l.UUID) {
		return l.assignableUnits(index, true), 1
	}
	for _, instance := range l.Instances {
		if s.MatchesPrefix(instance) {
			units = append(units, Unit{l, instance})
		}
	}
	return units, len(units)
}

// Selector is one entry of CUDA_VISIBLE_DEVICES.
type Selector struct {
	Index int    // -1 if the entry is a UUID
	UUID  string // GPU-… or MIG-…; a prefix is sufficient
}

// String returns the entry in CUDA's format.
func (s Selector) String() string {
	if s.UUID != "" {
		return s.UUID
	}
	return strconv.Itoa(s.Index)
}

// VisibleDevicesVariable is the environment variable that lists the GPUs that CUDA shows.
const VisibleDevicesVariable = "CUDA_VISIBLE_DEVICES"

// noDevices is the value that Slurm sets for a task without GPUs.
const noDevices = "NoDevFiles"

// ParseVisibleDevices parses the value of CUDA_VISIBLE_DEVICES. It must not be called if the
// variable is not set. The result is nil only if there is an error; an empty list means that the
// process must not use any GPU. An entry -1 ends the list. CUDA itself does not report an invalid
// entry, but ignores it and all entries after it.
func ParseVisibleDevices(value string) ([]Selector, error) {
	visible := []Selector{}
	value = strings.TrimSpace(value)
	if value == "" || value == noDevices {
		return visible, nil
	}
	for entry := range strings.SplitSeq(value, ",") {
		s, err := parseSelector(strings.TrimSpace(entry))
		switch {
		case err != nil:
			return nil, fmt.Errorf("cannot use %s=%s: %v", VisibleDevicesVariable,
				textutil.TruncateText(value, maxShownText), err)
		case s.UUID == "" && s.Index < 0:
			return visible, nil
		case slices.Contains(visible, s):
			return nil, fmt.Errorf("cannot use %s=%s: it lists %s twice, so CUDA would "+
				"show no GPU at all", VisibleDevicesVariable, textutil.TruncateText(value, maxShownText), s)
		}
		visible = append(visible, s)
	}
	return visible, nil
}

func parseSelector(entry string) (Selector, error) {
	if id := strings.ToUpper(entry); strings.HasPrefix(id, "GPU-") || strings.HasPrefix(id, "MIG-") {
		if len(id) == len("GPU-") {
			return Selector{}, fmt.Errorf("the UUID after %q is missing", entry)
		}
		return Selector{Index: -1, UUID: entry}, nil
	}
	index, err := strconv.Atoi(entry)
	switch {
	case entry == "":
		return Selector{}, fmt.Errorf("it has an empty entry between two commas")
	case err == nil && index >= -1:
		return Selector{Index: index}, nil
	case strings.Trim(entry, "0123456789-") == "":
		return Selector{}, fmt.Errorf("%q is not an index; CUDA does not accept ranges: list them as 0,1,2,3", entry)
	default:
		return Selector{}, fmt.Errorf("%q is not an index or a UUID (GPU-… or MIG-…)",
			textutil.TruncateText(entry, maxShownText))
	}
}

// maxShownText is the maximum number of characters of a text from another program in a message.
const maxShownText = 80

// MatchesPrefix reports whether a UUID begins with the UUID of the entry, which may be a prefix,
// ignoring case.
func (s Selector) MatchesPrefix(uuid string) bool {
	return len(uuid) >= len(s.UUID) && strings.EqualFold(uuid[:len(s.UUID)], s.UUID)
}
