package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/gpu"
)

// gpuProbeCommand is what a daemon runs to ask the driver: see gpu.Child.
func (inv *invocation) gpuProbeCommand() *cli.Command {
	var library string
	all := settings{text("nvml", "FILE", &library, "the library to ask, where the loader does not find it")}
	return &cli.Command{
		Name: gpu.ProbeCommand, Usage: "ask NVML for this node's GPUs, and print the answers as JSON",
		UsageText: "bringupd gpu-probe [--nvml=FILE]",
		Hidden:    true,
		Flags:     all.flags(func(*setting) bool { return true }),
		Action: func(c *cli.Context) error {
			if err := inv.noArguments(c); err != nil {
				return err
			}
			if _, err := all.gather(os.LookupEnv); err != nil {
				return err
			}
			// Nobody would heed them: who has run it by hand must be able to end it.
			signal.Reset(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			inv.code = gpu.ProbeMain(library, inv.files.Out)
			return nil
		},
	}
}
