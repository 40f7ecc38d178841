package framework_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
)

// withOwnProcess is a framework whose clusters have a process of this name.
type withOwnProcess struct {
	framework.None
	name string
}

func (f withOwnProcess) Traits() framework.Traits { return framework.Traits{OwnProcess: f.name} }

// TestWatchOwnClusters verifies that the process of a cluster that a driver has started is found by its
// name, and no other.
func TestWatchOwnClusters(t *testing.T) {
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
	var warning string
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	framework.WatchOwnClusters(ctx, map[string]framework.Framework{
		"none": framework.None{}, "other": withOwnProcess{name: "other-raylet"},
		"ray": withOwnProcess{name: "own-raylet"},
	}, 2, func(words string) { warning = words })
	if ctx.Err() != nil || !strings.Contains(warning, "--framework=ray") {
		t.Errorf("the warning is %q: %v", warning, ctx.Err())
	}
}
