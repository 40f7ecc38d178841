package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Unit is what a rank can have for its own: a GPU, or one of the instances that a GPU is cut into.
type Unit struct {
	Locality // of the GPU
	// Name is what it is called in its vendor's variable, CUDA_VISIBLE_DEVICES for NVIDIA: CUDA's index, or a UUID where an index would mislead, as a
	// program that counts by NVML would take it for another GPU.
	Name string
}

// Visible returns what this process may use, in the order that CUDA shows it in: lookup finds CUDA_VISIBLE_DEVICES, and
// CUDA_DEVICE_ORDER. GPUs that do not answer are left out. Where nobody could look, those that are listed are returned
// all the same, without a place. The error is of a list that can't be read, or that names what is not there.
//
// GPUs of other vendors are selected by their vendor's variable.
func (t Topology) Visible(lookup func(name string) (value string, set bool)) ([]Unit, error) {
	if t.vendor() != "" {
		return t.others(lookup)
	}
	value, listed := lookup(VisibleVariable)
	if !listed {
		order, _ := lookup("CUDA_DEVICE_ORDER")
		return t.every(order == "PCI_BUS_ID"), nil
	}
	selectors, err := ParseVisible(value)
	if err != nil {
		return nil, err
	}
	var units []Unit
	for _, s := range selectors {
		of, err := t.named(s)
		if err != nil {
			return nil, fmt.Errorf("cannot use %s=%s: %v", VisibleVariable, prose.Cut(value, shown), err)
		}
		units = append(units, of...)
	}
	return units, once(units, value)
}

// once refuses a list that names the same twice, in whatever ways.
func once(units []Unit, value string) error {
	seen := map[string]bool{}
	for _, unit := range units {
		key := unit.Name
		if unit.UUID != "" && unit.Instances == nil && !strings.Contains(unit.Name, "/") { // a whole GPU
			key = unit.UUID
		}
		if seen[key] {
			return fmt.Errorf("cannot use %s=%s: it has GPU %s twice, and CUDA would show no GPU at all",
				VisibleVariable, prose.Cut(value, shown), unit.Name)
		}
		seen[key] = true
	}
	return nil
}

// every returns all that this process may use. Among GPUs of several models CUDA's order is another than NVML's, unless
// it is told to be that of the bus.
func (t Topology) every(byBus bool) (units []Unit) {
	models := map[string]bool{}
	for _, g := range t.counted() {
		models[g.Model] = true
	}
	for i, g := range t.counted() {
		units = append(units, g.units(i, !byBus && len(models) > 1)...)
	}
	return units
}

// counted are the GPUs that CUDA's indices count: those that this process has the permission for.
func (t Topology) counted() []Locality {
	return slices.DeleteFunc(slices.Clone(t.GPUs), func(g Locality) bool { return g.Why == NoPermission })
}

// units are what a rank can have of a GPU with that index of CUDA's.
func (l Locality) units(index int, byUUID bool) (units []Unit) {
	if l.Why != "" {
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

// named returns what an entry of CUDA_VISIBLE_DEVICES means.
func (t Topology) named(s Selector) ([]Unit, error) {
	counted := t.counted()
	switch {
	case t.GPUs == nil:
		return []Unit{{Locality{Index: s.Index, NUMA: -1, NICs: []NIC{}}, s.String()}}, nil
	case s.UUID == "" && s.Index < len(counted):
		return counted[s.Index].units(s.Index, false), nil
	case s.UUID == "":
		return nil, fmt.Errorf("there is no GPU %d, but %d %s", s.Index, len(counted), prose.Noun(len(counted), "GPU"))
	}
	var found []Unit
	matches := 0
	for i, g := range counted {
		of, n := g.called(s, i)
		found, matches = append(found, of...), matches+n
	}
	switch matches {
	case 0:
		return nil, fmt.Errorf("no GPU here is called %s", prose.Cut(s.UUID, shown))
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("%d are called %s…: give more of the UUID", matches, prose.Cut(s.UUID, shown))
}

// called returns the units of a GPU that a UUID, or its beginning, names, and how many it names.
func (l Locality) called(s Selector, index int) (units []Unit, named int) {
	// MIG-GPU-<uuid>/<instance>/<instance> is how drivers before 470 name an instance.
	if old, _, isOld := strings.Cut(s.UUID, "/"); isOld && l.UUID != "" && strings.EqualFold("MIG-"+l.UUID, old) {
		return []Unit{{l, s.UUID}}, 1
	}
	if s.Begins(l.UUID) {
		return l.units(index, true), 1
	}
	for _, instance := range l.Instances {
		if s.Begins(instance) {
			units = append(units, Unit{l, instance})
		}
	}
	return units, len(units)
}
