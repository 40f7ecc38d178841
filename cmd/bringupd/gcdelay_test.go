package main

import (
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

func TestDelayGC(t *testing.T) {
	percent := func() int {
		now := debug.SetGCPercent(100)
		debug.SetGCPercent(now)
		return now
	}
	for _, tc := range []struct {
		variable     string
		start, later int
	}{{"", startGCPercent, 100}, {"50", 50, 50}} {
		t.Setenv("GOGC", tc.variable)
		debug.SetGCPercent(tc.later)
		defer debug.SetGCPercent(100)
		synctest.Test(t, func(t *testing.T) {
			delayGC()
			start := percent()
			time.Sleep(startGCTime)
			synctest.Wait()
			if later := percent(); start != tc.start || later != tc.later {
				t.Errorf("with GOGC=%s: %d, later %d", tc.variable, start, later)
			}
		})
	}
}
