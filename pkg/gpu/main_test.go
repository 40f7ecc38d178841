package gpu

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// ceiling limits waits that end much sooner on any machine.
const ceiling = 60 * time.Second

// helperVariable makes the test binary one of the helpers.
const helperVariable = "GPU_TEST_HELPER"

// helpers are the programs that the test binary can run instead of the tests, by name. Each test
// file registers its own before the tests begin.
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

// helperEnv returns the environment that makes the test binary a helper.
func helperEnv(name string, more ...string) []string {
	return append(append(os.Environ(), helperVariable+"="+name), more...)
}
