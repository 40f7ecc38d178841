// Package local runs the built bringupd on this machine, without a launcher and without privileges.
// Every script in testdata/script is one scenario.
package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	// The program under test is built by a command of which go test does not know. This import
	// invalidates the cached test result when the program changes.
	_ "github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/test/jobtest"
)

// TestMain builds the program and runs the tests, or is a helper process of one.
func TestMain(m *testing.M) {
	if paths, is := os.LookupEnv(exchangeVariable); is {
		os.Exit(exchange(paths))
	}
	if address, is := os.LookupEnv(serveVariable); is {
		os.Exit(serve(address))
	}
	jobtest.Main(m, nil, "../../examples/roles/*.*")
}

// TestScripts runs the scripts in testdata/script.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		Setup:               setup,
		Cmds:                commands(),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

func setup(env *testscript.Env) error {
	scripts, err := filepath.Glob(filepath.Join(env.WorkDir, "*.sh"))
	if err != nil {
		return err
	}
	for _, script := range scripts {
		if err := os.Chmod(script, 0o700); err != nil {
			return err
		}
	}
	for name, folder := range map[string]string{"DEPLOY": "../../deploy", "EXAMPLES": "../../examples"} {
		path, err := filepath.Abs(folder)
		if err != nil {
			return err
		}
		env.Setenv(name, path)
	}
	for _, program := range []string{"nginx", "haproxy"} { // stand-ins, if the script has them
		if err := os.Chmod(filepath.Join(env.WorkDir, program), 0o700); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	env.Setenv("PATH", filepath.Dir(jobtest.Bringupd)+string(filepath.ListSeparator)+env.Getenv("PATH"))
	for _, entry := range jobtest.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		env.Setenv(name, value)
	}
	env.Values[storyKey{}] = newStory(env)
	return nil
}
