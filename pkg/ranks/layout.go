package ranks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/prose"
)

// LayoutVersion is the version of the form that a Layout has as JSON. New fields may
// come under the same number; one that goes, or means something else, has a new number.
const LayoutVersion = 1

// Layout is a node, and who of its ranks would get what of it.
type Layout struct {
	Version int    `json:"version"`
	Host    string `json:"host"`
	binding.Node
	NoGPUs  string          `json:"no_gpus,omitempty"` // why none could be looked at
	PerNode string          `json:"ranks_per_node"`
	Bind    string          `json:"bind"`
	Ranks   []binding.Place `json:"ranks"`
}

// mostShown is how many ranks are shown at most: more than any node has CPUs.
const mostShown = 8192

// LayOut shares a node among as many ranks as perNode says; where it is empty, that is
// one a GPU or, without any, one a NUMA node. More than there is room for are no mistake
// here: it is told.
func LayOut(node binding.Node, perNode string, kinds binding.Kinds) (Layout, error) {
	slots := Slots{GPUs: node.Slots(binding.PerGPU), NUMAs: node.Slots(binding.PerNUMA), Cores: node.Slots(binding.PerCore), Bound: kinds.GPU}
	if perNode == "" {
		perNode = PerNUMA
		if slots.GPUs > 0 {
			perNode = PerGPU
		}
	}
	count, err := Wish{PerNode: perNode, Oversubscribe: true}.Here(slots)
	if err != nil {
		return Layout{}, fmt.Errorf("cannot share out this node: %v", err)
	}
	if count > mostShown {
		return Layout{}, fmt.Errorf("cannot share this node among %d ranks: give at most %d", count, mostShown)
	}
	return Layout{Version: LayoutVersion, Node: node, PerNode: perNode, Bind: kinds.String(), Ranks: node.Assign(count, kinds)}, nil
}

// Text is the layout for people.
func (l Layout) Text() string {
	var b strings.Builder
	count := func(n int, what string) string { return fmt.Sprintf("%d %s", n, prose.Noun(n, what)) }
	packages := map[int]bool{}
	cpus := 0
	for _, c := range l.Cores {
		packages[c.Package] = true
		cpus += len(c.CPUs)
	}
	fmt.Fprintf(&b, "%s: %s, %s, %s, %s\n", l.Host, count(len(packages), "package"), count(len(l.NUMA), "NUMA node"), count(len(l.Cores), "core"), count(cpus, "CPU"))
	fmt.Fprintf(&b, "  allowed here: CPUs %v (%s), memory nodes %v\n", l.CPUs, count(l.Slots(binding.PerCore), "core"), l.Mems)
	l.tellMemory(&b)
	l.tellDevices(&b)
	fmt.Fprintf(&b, "%s (--ranks-per-node=%s --bind=%s):\n", count(len(l.Ranks), "rank"), l.PerNode, l.Bind)
	for i, place := range l.Ranks {
		fmt.Fprintf(&b, "  %-4d %v\n", i, place)
	}
	l.tellNotes(&b)
	return b.String()
}

// tellMemory tells of the NUMA nodes. Of those without CPUs, which are mostly the memory of GPUs, there may be many.
func (l Layout) tellMemory(b *strings.Builder) {
	var others binding.Set
	for _, node := range l.NUMA {
		switch {
		case len(node.CPUs) > 0 && node.Memory:
			fmt.Fprintf(b, "  NUMA %d: CPUs %v\n", node.Node, node.CPUs)
		case len(node.CPUs) > 0:
			fmt.Fprintf(b, "  NUMA %d: CPUs %v, no memory\n", node.Node, node.CPUs)
		case node.Memory:
			others = append(others, node.Node)
		}
	}
	if len(others) > 0 {
		fmt.Fprintf(b, "  NUMA %v: memory without CPUs\n", others)
	}
}

func (l Layout) tellDevices(b *strings.Builder) {
	for _, g := range l.GPUs {
		at := fmt.Sprintf("NUMA %d, near CPUs %v", g.NUMA, g.CPUs)
		if g.Far {
			at = "near none of the allowed CPUs, or nobody knows"
		}
		fmt.Fprintf(b, "  GPU %s: %s, %s\n", g.Name, strings.TrimSpace(g.Bus+" "+g.UUID), strings.Join(append([]string{at}, g.NICs...), ", "))
	}
	if l.NoGPUs != "" {
		fmt.Fprintf(b, "  no GPUs: %s\n", l.NoGPUs)
	}
	for _, card := range l.NICs {
		state := "ports with a link: " + prose.Ranges(card.Ports)
		if len(card.Ports) == 0 {
			state = "no link"
		}
		fmt.Fprintf(b, "  %s: %s, NUMA %d, %s\n", card.Name, card.Bus, card.NUMA, state)
	}
}

// tellNotes says what is not bound, each once.
func (l Layout) tellNotes(b *strings.Builder) {
	var notes []string
	for _, place := range l.Ranks {
		if place.Note != "" && !slices.Contains(notes, place.Note) {
			notes = append(notes, place.Note)
		}
	}
	for _, note := range notes {
		fmt.Fprintf(b, "  each has %s\n", note)
	}
}
