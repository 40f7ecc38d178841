package cuda

import (
	"encoding/json"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// lookVariable makes the test binary a process that inspects once the library and the root
// directory in its arguments.
const lookVariable = "CUDA_TEST_LOOK"

// buildDir is the folder of a library that many tests load; empty: none.
var buildDir string

func TestMain(m *testing.M) {
	if os.Getenv(lookVariable) == "" {
		goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
			_ = os.RemoveAll(buildDir)
			os.Exit(code)
		}))
		return
	}
	if err := json.NewEncoder(os.Stdout).Encode(InspectDriver(os.Args[1], os.Args[2])); err != nil {
		panic(err)
	}
}
