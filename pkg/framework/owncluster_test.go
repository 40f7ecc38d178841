package framework_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
)

// withOwnProcess is a framework whose clusters have a process of this name.
type withOwnProcess struct {
	framework.None
	name string
}

func (f withOwnProcess) Traits() framework.Traits { return framework.Traits{OwnProcess: f.name} }

// TestLookForOwnCluster verifies that the process of a cluster that a driver has started is found by its
// name, and no other.
func TestLookForOwnCluster(t *testing.T) {
	data, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "own-raylet")
	if err := os.WriteFile(program, data, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	cluster := exec.Command(program, "600")
	if err := cluster.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cluster.Process.Kill()
		_ = cluster.Wait()
	}()
	look := framework.LookForOwnCluster(map[string]framework.Framework{
		"none": framework.None{}, "other": withOwnProcess{name: "other-raylet"},
		"ray": withOwnProcess{name: "own-raylet"},
	}, 2)
	warning := ""
	for end := time.Now().Add(time.Minute); warning == "" && time.Now().Before(end); {
		warning = look(process.ProcessTree(os.Getpid())) // it may not have executed its program yet
	}
	if !strings.Contains(warning, "--framework=ray") {
		t.Errorf("the warning is %q", warning)
	}
}
