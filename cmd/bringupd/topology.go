package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/ranks"
)

// layoutVersion is the version of the form that a layout has as JSON.
const layoutVersion = 1

// layout is a node, and who of its ranks would get what of it.
type layout struct {
	Version int    `json:"version"`
	Host    string `json:"host"`
	binding.Node
	NoGPUs  string          `json:"no_gpus,omitempty"` // why none could be looked at
	PerNode string          `json:"ranks_per_node"`
	Bind    string          `json:"bind"`
	Ranks   []binding.Place `json:"ranks"`
}

// surveying is one call of bringupd topology.
type surveying struct {
	*invocation
	json    bool
	library string // NVML; empty: where the linker finds it
	perNode string // empty: a GPU each or, without any, a NUMA node
	kinds   binding.Kinds
}

func (inv *invocation) topologyCommand() *cli.Command {
	s := &surveying{invocation: inv, kinds: binding.Kinds{CPU: true, Memory: true, Network: true, GPU: true}}
	return inv.command(cli.Command{
		Name: "topology", Usage: "print what this node has, and which rank would get what of it",
		UsageText: "bringupd topology [flags]\nsrun --nodes=1 --ntasks=1 bringupd topology --ranks-per-node=gpu",
		Description: "It shows what this process may use: in a job, that is the job's part of the node. " +
			"Nothing is bound by it. See also: bringupd check --bind, which tells a rank whether it is where it should be.",
	}, s.settings(), func([]string) error {
		_, err := s.leaving(errAgain, s.survey)
		return err
	})
}

func (s *surveying) settings() settings {
	perNode := valued("ranks-per-node", "N", &s.perNode, ranks.ParsePerNode, itself,
		"how many ranks this node is to have: a number, or one for each gpu, numa (NUMA node) or core (default: gpu where there are GPUs, or else numa)")
	perNode.accepted = ranks.Units
	bind := valued("bind", "KINDS", &s.kinds, binding.ParseKinds, func(k binding.Kinds) any { return k.String() },
		"what they are to be bound to: auto (all, where it makes sense), none, or some of cpu,memory,network,gpu")
	bind.accepted = []string{"auto", "none", "cpu", "memory", "network", "gpu"}
	return slices.Concat(
		under("The ranks", perNode, bind),
		under("The GPUs", text("nvml", "FILE", &s.library, "NVIDIA's management library (default: libnvidia-ml.so.1, where the linker finds it)")),
		under(resultFlags, yes("json", &s.json, "print it as JSON, for programs").not(byVariable)),
	)
}

// survey looks at the node and shows it.
func (s *surveying) survey(ctx context.Context) error {
	gpus, noGPUs, err := s.gpus(ctx)
	if err != nil {
		return err
	}
	node, err := binding.Discover("/", gpus, os.LookupEnv)
	if err != nil {
		return usage("%v", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	l := layout{Version: layoutVersion, Host: host, Node: node, NoGPUs: noGPUs, Bind: s.kinds.String()}
	if err := l.share(s.perNode, s.kinds); err != nil {
		return usage("%v", err)
	}
	if s.json {
		return writeJSON(s.files.Out, l)
	}
	_, err = io.WriteString(s.files.Out, l.text())
	return err
}

// gpus asks for the GPUs of this node, if there is any sign of one, in a process of its own; why tells of none.
func (s *surveying) gpus(ctx context.Context) (t gpu.Topology, why string, err error) {
	if s.library == "" && len(gpu.Present("/")) == 0 {
		return t, "there is no sign of an NVIDIA GPU, or of its driver", nil
	}
	facts, err := gpu.Child{Library: s.library}.Probe(ctx)
	switch {
	case err != nil:
		return t, "", err
	case facts.Init != gpu.Success:
		return t, strings.TrimSuffix(fmt.Sprintf("NVML can't be asked for GPUs: %s: %s", facts.Init, facts.Detail), ": "), nil
	case len(facts.GPUs) == 0:
		why = "NVML shows no GPU"
	}
	return gpu.Topologize("/", facts), why, nil
}

// share gives the ranks what there is. More of them than there is room for are no mistake here: it is told.
func (l *layout) share(perNode string, kinds binding.Kinds) error {
	slots := ranks.Slots{GPUs: l.Slots(binding.PerGPU), NUMAs: l.Slots(binding.PerNUMA), Cores: l.Slots(binding.PerCore), Bound: kinds.GPU}
	if perNode == "" {
		perNode = ranks.PerNUMA
		if slots.GPUs > 0 {
			perNode = ranks.PerGPU
		}
	}
	count, err := ranks.Wish{PerNode: perNode, Oversubscribe: true}.Here(slots)
	if err != nil {
		return fmt.Errorf("cannot share out this node: %v", err)
	}
	if count > mostShown {
		return fmt.Errorf("cannot share this node among %d ranks: give at most %d", count, mostShown)
	}
	l.PerNode, l.Ranks = perNode, l.Assign(count, kinds)
	return nil
}

// mostShown is how many ranks are shown at most: more than any node has CPUs.
const mostShown = 8192

// text is the layout for people.
func (l *layout) text() string {
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
func (l *layout) tellMemory(b *strings.Builder) {
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

func (l *layout) tellDevices(b *strings.Builder) {
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
func (l *layout) tellNotes(b *strings.Builder) {
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
