// Command bringupd starts a cluster inside a batch allocation: one daemon per node, started by a
// single srun.
package main

//go:generate go test . -run ^TestDocs$ -update

import (
	"fmt"
	"os"
	"runtime"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
)

// The kernel delivers a signal of the process to its first thread, which must not be blocked by a
// call to an unresponsive file system. It runs only main, which never makes such a call itself.
func init() { runtime.LockOSThread() }

func main() {
	// This precedes everything that needs another thread, which a low limit may not allow.
	if startsDaemon(os.Args) {
		host, _ := os.Hostname() // the message does not need it
		if err := checkLimits(minDaemonLimits, host); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "bringupd:", err)
			os.Exit(exitCodeOf(err))
		}
		delayGC()
	}
	signals := lifecycle.Signals()
	os.Exit(runMain(os.Args, signals, config.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
