package readiness_test

import (
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/readiness"
)

// Whoever waits for a node must outwait a look that began when the time was up
// and finds that the driver hangs: else nobody says that it does.
func TestLongest(t *testing.T) {
	for mode, want := range map[check.Mode]time.Duration{
		check.ModeAuto: time.Minute + gpu.ProbeDeadline,
		check.ModeOff:  time.Minute,
	} {
		checks, err := readiness.New(readiness.Config{
			Config: check.Config{Timeout: time.Minute, Policy: check.Policy{Mode: mode}}, Granted: -1, Root: t.TempDir(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := checks.Longest(); got <= want {
			t.Errorf("with %s the checks may take %s, want more than %s", mode, got, want)
		}
	}
}

// Nobody tells a daemon where /sys is: it must look at its own machine then, not nowhere.
func TestRoot(t *testing.T) {
	checks, err := readiness.New(readiness.Config{Config: check.Config{Policy: check.Policy{Mode: check.ModeAuto}}, Granted: -1})
	if err != nil {
		t.Fatal(err)
	}
	if root := checks.GPUs().Root; root != "/" {
		t.Errorf("GPUs are looked for below %q, want /", root)
	}
}
