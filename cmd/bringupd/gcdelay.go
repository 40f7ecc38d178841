package main

import (
	"os"
	"runtime/debug"
	"time"
)

const (
	// startGCPercent is the value of GOGC after the start of a daemon: the first collection comes when
	// the heap has 16 MiB instead of 4.
	startGCPercent = 400
	// startGCTime is the time for which the collections are delayed: the start of a job.
	startGCTime = 10 * time.Second
)

// delayGC makes garbage collections rare for a while. A daemon allocates about 4 MiB while its job
// starts, and a collection at that time would take a tenth of its processor time. delayGC does
// nothing if the environment variable GOGC is set.
func delayGC() {
	if os.Getenv("GOGC") != "" {
		return
	}
	usual := debug.SetGCPercent(startGCPercent)
	time.AfterFunc(startGCTime, func() { debug.SetGCPercent(usual) })
}
