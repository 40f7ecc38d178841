package simulate

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ceiling limits waits that end much sooner on any machine.
const ceiling = 60 * time.Second
