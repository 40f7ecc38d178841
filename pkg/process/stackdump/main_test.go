package stackdump

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// ceiling limits waits that end much sooner on any machine.
const ceiling = 60 * time.Second

func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	goleak.VerifyTestMain(m)
}
