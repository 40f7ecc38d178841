package launch

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Tests of another package lock the memory of a process, whose environment the kernel then hands
	// out late; the goroutine that reads it is given up by design and ends with the answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(
		"github.com/bringupd/bringupd/pkg/process.(*procScanner).readEnviron.func1"))
}
