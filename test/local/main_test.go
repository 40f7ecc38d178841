// Package local runs the built bringupd on this machine, without a launcher and without privileges.
// Every script in testdata/script is one scenario.
package local

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	// The program under test is built by a command of which go test does not know. This import
	// invalidates the cached test result when the program changes.
	_ "github.com/bringupd/bringupd/pkg/daemon"
)

const command = "../../cmd/bringupd"

// bin is the directory that contains the bringupd under test.
var bin string

// TestMain builds the program and runs the tests, or is a helper process of one.
func TestMain(m *testing.M) {
	if paths, is := os.LookupEnv(exchangeVariable); is {
		os.Exit(exchange(paths))
	}
	if address, is := os.LookupEnv(serveVariable); is {
		os.Exit(serve(address))
	}
	code, err := runBuilt(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runBuilt(m *testing.M) (code int, err error) {
	if bin, err = os.MkdirTemp("", "bringupd-local-"); err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(bin) }()
	if err := noteSources(); err != nil {
		return 1, err
	}
	build := exec.Command("go", "build", "-tags", "netgo,osusergo", "-race="+fmt.Sprint(race), "-o",
		filepath.Join(bin, "bringupd"), command)
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("cannot build bringupd: %v: %s", err, out)
	}
	return m.Run(), nil
}

// noteSources opens the sources that are not reached by an import. go test then knows that the
// result depends on them.
func noteSources() error {
	sources, err := filepath.Glob(command + "/*.go")
	if err != nil || len(sources) == 0 {
		return fmt.Errorf("cannot find the sources in %s: %v", command, err)
	}
	examples, err := filepath.Glob("../../examples/roles/*.*")
	if err != nil || len(examples) == 0 {
		return fmt.Errorf("cannot find the examples: %v", err)
	}
	for _, source := range append(sources, examples...) {
		if _, err := os.ReadFile(source); err != nil {
			return err
		}
	}
	return nil
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
	env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
	// The race detector's default exit code could be mistaken for one of bringupd's, and by default it
	// makes every process sleep for a second before it exits.
	env.Setenv("GORACE", "exitcode=199 atexit_sleep_ms=0")
	env.Values[storyKey{}] = newStory(env)
	return nil
}
