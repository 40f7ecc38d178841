// Package gcdelay delays garbage collections of a process that has just started.
package gcdelay

import (
	"os"
	"runtime/debug"
	"time"
)

// startPercent is the value of GOGC after the start of a process: the first collection comes when
// the heap has 16 MiB instead of 4.
const startPercent = 400

// StartTime is the time for which the collections of a daemon are delayed: the start of a job.
const StartTime = 10 * time.Second

// Delay makes garbage collections rare for a while. A daemon allocates about 4 MiB while its job
// starts, and a collection at that time would take a tenth of its processor time. Delay does nothing
// if the environment variable GOGC is set.
func Delay(while time.Duration) {
	if os.Getenv("GOGC") != "" {
		return
	}
	usual := debug.SetGCPercent(startPercent)
	time.AfterFunc(while, func() { debug.SetGCPercent(usual) })
}
