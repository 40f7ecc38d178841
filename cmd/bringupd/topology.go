package main

import (
	"context"
	"io"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
)

// topologyCmd is one execution of bringupd topology.
type topologyCmd struct {
	*invocation
	asJSON       bool
	nvmlPath     string // NVML; empty: found by the linker
	ranksPerNode string // empty: one per GPU or, without GPUs, one per NUMA node
	resources    affinity.ResourceKinds
}

func (inv *invocation) topologyCommand() *cli.Command {
	s := &topologyCmd{invocation: inv, resources: affinity.AllKinds()}
	return inv.completeCommand(cli.Command{
		Name: "topology", Usage: "print what this node has, and which rank would get what of it",
		UsageText: "bringupd topology [flags]\nsrun --nodes=1 --ntasks=1 bringupd topology --ranks-per-node=gpu",
		Description: "It shows what this process may use: in a job, that is the job's part of the node. " +
			"Nothing is bound by it. See also: bringupd check --bind, which tells a rank whether it is where it should be.",
	}, s.newSettings(), func([]string) error {
		_, err := s.runAbandonable(nil, s.printTopology)
		return err
	})
}

func (s *topologyCmd) newSettings() setting.List {
	perNode := ranksPerNodeSetting(&s.ranksPerNode, "how many ranks this node is to have: a number, or one for each gpu, numa (NUMA node) or core (default: gpu where there are GPUs, or else numa)")
	bind := bindSetting(&s.resources, "what they are to be bound to")
	return slices.Concat(
		setting.AssignCategory("The ranks", perNode, bind),
		setting.AssignCategory("The GPUs", nvmlSetting(&s.nvmlPath)),
		setting.AssignCategory(resultHeading, setting.NewSwitch("json", &s.asJSON, "print it as JSON, for programs").ExcludeSources(setting.SourceVariable)),
	)
}

// printTopology inspects the node and prints the result.
func (s *topologyCmd) printTopology(ctx context.Context) error {
	gpus, noGPUs, err := gpu.Child{Library: s.nvmlPath}.ProbeTopology(ctx)
	if err != nil {
		return err
	}
	node, err := affinity.DiscoverNode("/", gpus, os.LookupEnv)
	if err != nil {
		return usageErrorf("%v", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	l, err := ranks.PlanLayout(node, s.ranksPerNode, s.resources)
	if err != nil {
		return usageErrorf("%v", err)
	}
	l.Host, l.NoGPUs = host, noGPUs
	if s.asJSON {
		return writeJSON(s.streams.Out, l)
	}
	_, err = io.WriteString(s.streams.Out, l.FormatText())
	return err
}
