package ranks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
)

// LayoutVersion is the version of the JSON format of [Layout]. New fields do not change it; removed
// fields and changed meanings do.
const LayoutVersion = 2

// Layout describes a node and the bindings of its ranks.
type Layout struct {
	Version int    `json:"version"`
	Host    string `json:"host"`
	affinity.Node
	PerNode string              `json:"ranks_per_node"`
	Bind    string              `json:"bind"`
	Ranks   []affinity.Affinity `json:"ranks"`
}

// maxLayoutRanks is the maximum number of ranks of a Layout: more than any node has CPUs.
const maxLayoutRanks = 8192

// PlanLayout computes the bindings of the ranks of a node. If perNode is empty, it plans one rank
// per GPU or, without GPUs, one per NUMA node. More ranks than GPUs or cores are not an error here.
func PlanLayout(node affinity.Node, perNode string, kinds affinity.ResourceKinds) (Layout, error) {
	slots := NodeSlots{GPUs: node.CountSlots(affinity.PerGPU), NUMAs: node.CountSlots(affinity.PerNUMA),
		Cores: node.CountSlots(affinity.PerCore), OwnGPUs: kinds.GPU}
	if perNode == "" {
		perNode = PerNUMA
		if slots.GPUs > 0 {
			perNode = PerGPU
		}
	}
	count, err := LayoutRequest{PerNode: perNode, Oversubscribe: true}.NodeRanks(slots)
	if err != nil {
		return Layout{}, fmt.Errorf("cannot divide this node among ranks: %v", err)
	}
	if count > maxLayoutRanks {
		return Layout{}, fmt.Errorf("cannot divide this node among %d ranks: give at most %d", count, maxLayoutRanks)
	}
	return Layout{Version: LayoutVersion, Node: node, PerNode: perNode, Bind: kinds.String(),
		Ranks: node.AssignRanks(count, kinds)}, nil
}

// FormatText returns the layout as text for users.
func (l Layout) FormatText() string {
	var b strings.Builder
	count := func(n int, what string) string { return fmt.Sprintf("%d %s", n, textutil.PluralForm(n, what)) }
	packages := map[int]bool{}
	cpus := 0
	for _, c := range l.Cores {
		packages[c.Package] = true
		cpus += len(c.CPUs)
	}
	fmt.Fprintf(&b, "%s: %s, %s, %s, %s\n", l.Host, count(len(packages), "package"),
		count(len(l.NUMA), "NUMA node"), count(len(l.Cores), "core"), count(cpus, "CPU"))
	fmt.Fprintf(&b, "  allowed here: CPUs %v (%s), memory nodes %v\n", l.CPUs,
		count(l.CountSlots(affinity.PerCore), "core"), l.Mems)
	// Nodes without CPUs are mostly the memory of GPUs.
	for _, node := range l.NUMA {
		if len(node.CPUs) > 0 {
			fmt.Fprintf(&b, "  NUMA %d: CPUs %v\n", node.Number, node.CPUs)
		}
	}
	l.writeDevices(&b)
	fmt.Fprintf(&b, "%s (--ranks-per-node=%s --bind=%s):\n", count(len(l.Ranks), "rank"), l.PerNode, l.Bind)
	for i, place := range l.Ranks {
		fmt.Fprintf(&b, "  %-4d %v\n", i, place)
	}
	l.writeNotes(&b)
	return b.String()
}

func (l Layout) writeDevices(b *strings.Builder) {
	for _, g := range l.GPUs {
		at := fmt.Sprintf("NUMA %d, near CPUs %v", g.NUMA, g.CPUs)
		if g.IsFar {
			at = "near none of the allowed CPUs, or unknown"
		}
		fmt.Fprintf(b, "  GPU %s: %s, %s\n", g.Name, strings.TrimSpace(g.Bus+" "+g.UUID),
			strings.Join(append([]string{at}, g.NICs...), ", "))
	}
	for _, card := range l.NICs {
		state := "ports with a link: " + textutil.FormatRanges(card.Ports)
		if len(card.Ports) == 0 {
			state = "no link"
		}
		fmt.Fprintf(b, "  %s: %s, NUMA %d, %s\n", card.Name, card.Bus, card.NUMA, state)
	}
}

// writeNotes prints what is not bound, each note once.
func (l Layout) writeNotes(b *strings.Builder) {
	var notes []string
	for _, place := range l.Ranks {
		if place.Note != "" && !slices.Contains(notes, place.Note) {
			notes = append(notes, place.Note)
		}
	}
	for _, note := range notes {
		fmt.Fprintf(b, "  note: %s\n", note)
	}
}
