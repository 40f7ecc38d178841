// Command bringupd brings up a cluster inside a batch allocation: one daemon a
// node, started by a single srun.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon"
)

// The kernel gives a signal of the process to its first thread, and that thread
// must not be waiting for a share that hangs: it runs nothing but main, which
// never calls the share itself.
func init() { runtime.LockOSThread() }

func main() {
	// This comes before anything that needs another thread, which a low limit may not leave.
	if startsDaemon(os.Args) {
		host, _ := os.Hostname() // the message goes without
		if err := enough(daemonNeeds, host); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "bringupd:", err)
			os.Exit(codeOf(err))
		}
	}
	signals := daemon.Signals()
	os.Exit(run(os.Args, signals, config.Files{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
