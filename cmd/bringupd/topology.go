package main

import (
	"context"
	"io"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
)

type topologyCmd struct {
	*invocation
	asJSON       bool
	ranksPerNode string // empty: one per GPU or, without GPUs, one per NUMA node
	resources    affinity.ResourceKinds
}

func (inv *invocation) topologyCommand() *cli.Command {
	s := &topologyCmd{invocation: inv, resources: affinity.AllKinds()}
	return inv.completeCommand(cli.Command{
		Name: "topology", Usage: "show this node's hardware, and how ranks would be bound",
		UsageText: "bringupd topology [flags]\nsrun --nodes=1 --ntasks=1 bringupd topology --ranks-per-node=gpu",
		Description: "The command shows the resources that this process may use: in a job, those of the job. " +
			"It binds nothing.",
	}, s.newSettings(), func([]string) error {
		_, err := s.runAbandonable(s.printTopology)
		return err
	})
}

func (s *topologyCmd) newSettings() config.List {
	perNode := ranksPerNodeSetting(&s.ranksPerNode,
		"number of ranks on this node, or one per gpu, numa (NUMA node) or core (default: gpu, or numa "+
			"without GPUs)")
	bind := bindSetting(&s.resources, "what each rank is bound to")
	return slices.Concat(
		config.AssignCategory("Ranks", perNode, bind),
		removedSettings("topology"),
		config.AssignCategory(outputHeading, config.FlagsOnly(config.NewSwitch("json", &s.asJSON, "print JSON"))...),
	)
}

func (s *topologyCmd) printTopology(ctx context.Context) error {
	gpus, err := gpu.Child{}.ProbeTopology(ctx)
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
	l.Host = host
	if s.asJSON {
		return writeJSON(s.streams.Out, l)
	}
	_, err = io.WriteString(s.streams.Out, l.FormatText())
	return err
}
