//go:build recipes

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestRecipes runs the examples with the real packages. BRINGUPD_TEST_TORCH and
// BRINGUPD_TEST_DASK name a Python that has them, which make test installs.
func TestRecipes(t *testing.T) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/recipes",
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", examples)
			for _, name := range []string{"TORCH", "DASK"} {
				python := os.Getenv("BRINGUPD_TEST_" + name)
				if python == "" {
					return fmt.Errorf("cannot run without %s: BRINGUPD_TEST_%s must name a Python that has it", name, name)
				}
				env.Setenv(name, python)
			}
			err := setup(env)
			env.Setenv("PATH", env.Getenv("PATH")+string(filepath.ListSeparator)+os.Getenv("BRINGUPD_TEST_PYSPY"))
			return err
		},
		Cmds:                commands(),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}
