package service

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A guard is this binary again, and with the race detector it sleeps for a second before it exits.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	// Tests of another package lock the memory of a process, whose environment the kernel then hands
	// out late; the goroutine that reads it is given up by design and ends with the answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(
		"github.com/bringupd/bringupd/pkg/process.(*procScanner).readEnviron.func1"))
}
