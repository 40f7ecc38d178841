package gpu

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// ceiling is for waits that end much sooner, on whatever machine.
const ceiling = 60 * time.Second

// helperVariable makes the test binary one of the helpers.
const helperVariable = "GPU_TEST_HELPER"

// helpers are what the test binary can be instead, by name. Each file of tests
// adds its own before the tests begin.
var helpers = map[string]func() int{}

func TestMain(m *testing.M) {
	name := os.Getenv(helperVariable)
	if name == "" {
		goleak.VerifyTestMain(m)
		return
	}
	helper, found := helpers[name]
	if !found {
		fmt.Fprintf(os.Stderr, "no helper %q\n", name)
		os.Exit(2)
	}
	os.Exit(helper())
}

// helperEnv is the environment that makes a helper of the test binary.
func helperEnv(name string, more ...string) []string {
	return append(append(os.Environ(), helperVariable+"="+name), more...)
}
