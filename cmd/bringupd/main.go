// Command bringupd brings up a cluster inside a batch allocation: one daemon a
// node, started by a single srun.
package main

import (
	"os"

	"github.com/bringupd/bringupd/pkg/daemon"
)

func main() {
	signals := daemon.Signals()
	os.Exit(run(os.Args, signals, daemon.Files{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
