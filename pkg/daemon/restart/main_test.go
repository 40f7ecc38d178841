package restart

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/test/twin"
)

func TestMain(m *testing.M) {
	twin.Main()
	goleak.VerifyTestMain(m)
}
