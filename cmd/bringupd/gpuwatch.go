package main

import (
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/gpu"
)

// gpuWatchCommand is what a daemon runs to hear of what befalls the GPUs: see
// gpu.Watch.
func (inv *invocation) gpuWatchCommand() *cli.Command {
	var library string
	all := settings{text("nvml", "FILE", &library, "the library to ask, where the loader does not find it")}
	return &cli.Command{
		Name: gpu.WatchCommand, Usage: "print what befalls this node's GPUs, as JSON lines",
		UsageText: "bringupd gpu-watch [--nvml=FILE]",
		Hidden:    true,
		Flags:     all.flags(func(*setting) bool { return true }),
		Action: func(c *cli.Context) error {
			if err := inv.noArguments(c); err != nil {
				return err
			}
			if _, err := all.gather(os.LookupEnv); err != nil {
				return err
			}
			inv.code = gpu.WatchMain(context.Background(), library, inv.files.In, inv.files.Out)
			return nil
		},
	}
}
