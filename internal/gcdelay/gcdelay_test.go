package gcdelay

import (
	"os"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// percent returns the present value of GOGC.
func percent() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestDelay(t *testing.T) {
	t.Setenv("GOGC", "")
	if err := os.Unsetenv("GOGC"); err != nil {
		t.Fatal(err)
	}
	debug.SetGCPercent(100)
	synctest.Test(t, func(t *testing.T) {
		Delay(10 * time.Second)
		if now := percent(); now != startPercent {
			t.Errorf("after the start it is %d", now)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if now := percent(); now != 100 {
			t.Errorf("later it is %d", now)
		}
	})
}

func TestDelayKeepsTheUsersChoice(t *testing.T) {
	t.Setenv("GOGC", "50")
	debug.SetGCPercent(50)
	defer debug.SetGCPercent(100)
	Delay(time.Hour)
	if now := percent(); now != 50 {
		t.Errorf("it is %d", now)
	}
}
