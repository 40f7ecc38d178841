package main

import (
	"context"
	"io"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/setting"
)

// surveying is one execution of bringupd topology.
type surveying struct {
	*invocation
	json    bool
	library string // NVML; empty: found by the linker
	perNode string // empty: one per GPU or, without GPUs, one per NUMA node
	kinds   binding.Kinds
}

func (inv *invocation) topologyCommand() *cli.Command {
	s := &surveying{invocation: inv, kinds: binding.All()}
	return inv.command(cli.Command{
		Name: "topology", Usage: "print what this node has, and which rank would get what of it",
		UsageText: "bringupd topology [flags]\nsrun --nodes=1 --ntasks=1 bringupd topology --ranks-per-node=gpu",
		Description: "It shows what this process may use: in a job, that is the job's part of the node. " +
			"Nothing is bound by it. See also: bringupd check --bind, which tells a rank whether it is where it should be.",
	}, s.settings(), func([]string) error {
		_, err := s.leaving(nil, s.survey)
		return err
	})
}

func (s *surveying) settings() setting.List {
	perNode := ranksPerNode(&s.perNode, "how many ranks this node is to have: a number, or one for each gpu, numa (NUMA node) or core (default: gpu where there are GPUs, or else numa)")
	bind := kinds(&s.kinds, "what they are to be bound to")
	return slices.Concat(
		setting.Under("The ranks", perNode, bind),
		setting.Under("The GPUs", nvml(&s.library)),
		setting.Under(resultFlags, setting.Yes("json", &s.json, "print it as JSON, for programs").Not(setting.ByVariable)),
	)
}

// survey inspects the node and prints the result.
func (s *surveying) survey(ctx context.Context) error {
	gpus, noGPUs, err := gpu.Child{Library: s.library}.Locate(ctx)
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
	l, err := ranks.LayOut(node, s.perNode, s.kinds)
	if err != nil {
		return usage("%v", err)
	}
	l.Host, l.NoGPUs = host, noGPUs
	if s.json {
		return writeJSON(s.files.Out, l)
	}
	_, err = io.WriteString(s.files.Out, l.Text())
	return err
}
