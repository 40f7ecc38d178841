package main

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pmi/pmi1/trial"
	"github.com/bringupd/bringupd/pkg/setting"
)

func (inv *invocation) pmiCommand() *cli.Command {
	t := trial.Trial{Timeout: time.Minute, Getenv: os.Getenv}
	own := setting.List{
		setting.Yes("put", &t.Put, "put a value, fence, and get those of other ranks").Not(setting.ByVariable),
		setting.Yes("fence", &t.Fence, "fence, five times").Not(setting.ByVariable),
		setting.Yes("spawn", &t.Spawn, "have rank 0 spawn one rank more").Not(setting.ByVariable),
		setting.Yes("abort", &t.Abort, "have the last rank abort the job with 42, at the end").Not(setting.ByVariable),
		setting.Wait("timeout", &t.Timeout, "for all of it").Not(setting.ByVariable),
	}
	return inv.command(cli.Command{
		Name: "pmi", Usage: "ask, as a rank, the server of PMI-1 what an MPI would",
		UsageText: "bringupd --ranks-per-node=2 -- bringupd pmi test [flags]",
		Description: "Each rank prints what it was told and how long it took, without any MPI; it works under every launcher that serves PMI-1. Without flags it puts and fences. " +
			"Exits with 0; 124 if the timeout is over, 76 if the server does not answer as it should or has gone, 64 if there is none.",
	}, setting.Under("What is tried", own...), func(args []string) error {
		if !slices.Equal(args, []string{"test"}) {
			return usage("cannot tell what to do: give test")
		}
		var err error
		if t.Program, err = os.Executable(); err != nil {
			return err
		}
		return inv.heeding(func(ctx context.Context, _ <-chan struct{}) error {
			kind, err := t.Run(ctx, inv.files.Out)
			if kind == health.Usage {
				return usage("%v", err)
			}
			if err != nil && ctx.Err() == nil {
				inv.say("%v", err)
				inv.code = health.OutcomeOf(kind).Code
			}
			return nil
		})
	})
}
