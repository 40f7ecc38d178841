// Package faults runs whole jobs of the built bringupd on this machine, each
// daemon on a mount of its own of one hostile file system (test/hostile), and
// breaks the mounts in every phase. What comes of it is the table in
// docs/reliability.md, which go test ./test/faults -update writes.
package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	// The program under test is built by a command that go test knows nothing
	// of: the import has it forget its cached result when the program changes.
	_ "github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/test/hostile"
)

const command = "../../cmd/bringupd"

var (
	update = flag.Bool("update", false, "write the table in docs/reliability.md anew")

	bringupd string          // the program under test
	server   hostile.Program // that of the mounts
)

// memory is where files are kept in memory.
const memory = "/dev/shm"

// width is how many jobs run at the same time: they mostly wait.
const width = 12

func TestMain(m *testing.M) {
	flag.Parse()
	if err := hostile.Available(); err != nil {
		fmt.Fprintln(os.Stderr, "NOT RUN:", err)
		if os.Getenv("CI") == "true" {
			os.Exit(1)
		}
		return
	}
	code, err := runBuilt(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runBuilt(m *testing.M) (code int, err error) {
	if err := flag.Set("test.parallel", strconv.Itoa(width)); err != nil {
		return 1, err
	}
	bin, err := os.MkdirTemp("", "bringupd-faults-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bin)) }()
	if err := noteSources(); err != nil {
		return 1, err
	}
	bringupd = filepath.Join(bin, "bringupd")
	build := exec.Command("go", "build", "-tags", "netgo,osusergo", "-race="+strconv.FormatBool(race), "-o", bringupd, command)
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("cannot build bringupd: %v: %s", err, out)
	}
	if server, err = hostile.Build(context.Background(), bin, race); err != nil {
		return 1, err
	}
	// Not on a disk: that of a busy machine may itself stall for seconds.
	if info, err := os.Stat(memory); err == nil && info.IsDir() {
		if err := os.Setenv("TMPDIR", memory); err != nil {
			return 1, err
		}
	}
	code = m.Run()
	if err := goleak.Find(); err != nil {
		return 1, err
	}
	return code, nil
}

// noteSources opens what no import reaches, which has go test note that the
// result hangs on it.
func noteSources() error {
	sources, err := filepath.Glob(command + "/*.go")
	if err != nil || len(sources) == 0 {
		return fmt.Errorf("cannot find the sources in %s: %v", command, err)
	}
	for _, source := range sources {
		if _, err := os.ReadFile(source); err != nil {
			return err
		}
	}
	return nil
}
