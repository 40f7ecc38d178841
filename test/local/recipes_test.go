//go:build recipes

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestRecipes runs the examples with the real packages. BRINGUPD_TEST_TORCH, BRINGUPD_TEST_JAX and
// BRINGUPD_TEST_DASK name a Python that has them, BRINGUPD_TEST_LLAMA one that has llama.cpp,
// BRINGUPD_TEST_LIGHTNING, BRINGUPD_TEST_ACCELERATE, BRINGUPD_TEST_DEEPSPEED and BRINGUPD_TEST_OPENAI
// directories of additional packages for torch's Python, BRINGUPD_TEST_RAPIDSMPF a program, and
// BRINGUPD_TEST_ROUTERS a directory with nginx and HAProxy. make test-all installs them all.
func TestRecipes(t *testing.T) {
	var dirs [2]string
	for i, dir := range []string{"../../examples", "testdata"} {
		var err error
		if dirs[i], err = filepath.Abs(dir); err != nil {
			t.Fatal(err)
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/recipes",
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", dirs[0])
			env.Setenv("TESTDATA", dirs[1])
			for _, name := range []string{
				"TORCH", "JAX", "DASK", "LIGHTNING", "ACCELERATE", "DEEPSPEED", "RAPIDSMPF", "LLAMA", "OPENAI",
				"ROUTERS",
			} {
				has := os.Getenv("BRINGUPD_TEST_" + name)
				if has == "" {
					return fmt.Errorf("cannot run without %s: BRINGUPD_TEST_%s must name what has it", name, name)
				}
				env.Setenv(name, has)
			}
			env.Setenv("PATH", filepath.Dir(env.Getenv("DASK"))+":"+env.Getenv("PATH"))
			err := setup(env)
			env.Setenv("PATH", env.Getenv("PATH")+string(filepath.ListSeparator)+os.Getenv(
				"BRINGUPD_TEST_PYSPY"))
			return err
		},
		Cmds:                commands(),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}
