package journal

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ceiling is for waits that end much sooner, on whatever machine.
const ceiling = 60 * time.Second
