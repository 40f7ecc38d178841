package daemon

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles"
)

// TestKilledDaemonLeavesNoDirectory kills a daemon with SIGKILL: its guard removes the private
// directory, which the daemon can no longer do.
func TestKilledDaemonLeavesNoDirectory(t *testing.T) {
	t.Parallel()
	marks := t.TempDir()
	j := newRealJob(t, 1, "touch "+marks+"/running; exec sleep 300").all(func(c *deps.Config) {
		c.Framework = framework.None{WorkerCommand: "exec sleep 300"}
	})
	j.roles[0] = roles.RoleHead
	head := j.launch(0, j.errs)
	j.untilFile(filepath.Join(marks, "running"))
	made := func() []string {
		dirs, _ := filepath.Glob(filepath.Join(j.tempDir, "bu-*"))
		return dirs
	}
	if len(made()) != 1 {
		t.Fatalf("the private directories are %v", made())
	}
	head.signal(syscall.SIGKILL)
	head.wait()
	j.until("the private directory removed", func() bool { return len(made()) == 0 })
}
