package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/pipe"
)

// TestNobodyReadsStandardError ends a job whose daemons' standard error is a pipe that is full and
// stays full: the driver is signalled, the abort is published, all daemons end, and the daemon's
// log contains the lines that were not read.
func TestNobodyReadsStandardError(t *testing.T) {
	takesSeconds(t)
	t.Parallel()
	marks := t.TempDir()
	j := newRealJob(t, 2, saving(marks, "0"))
	_, stderr := pipe.Unread(t)
	head, worker := j.launch(0, stderr), j.launch(1, stderr)
	j.untilFile(filepath.Join(marks, "running"))
	head.signal(syscall.SIGTERM)
	j.untilFile(filepath.Join(marks, "saved"))
	j.untilNamed(signal.ControlDir, signal.AbortName(0, 2))
	head.wait()
	worker.wait()
	j.expect(143, 143)
	j.blames(0, health.Terminated, 143)
	log := j.log(0)
	for _, want := range []string{`"last_words":["bringupd: the job was ended with code 143`, `standard error was not read to its end`} {
		if !strings.Contains(log, want) {
			t.Errorf("the head's own log lacks %q: %s", want, log)
		}
	}
}

// log returns a daemon's own log.
func (j *job) log(nodeIndex int) string {
	j.t.Helper()
	data, err := os.ReadFile(filepath.Join(j.run(), signal.LogsDir, signal.LogName("daemon", nodeIndex, j.size)))
	if err != nil {
		j.t.Error(err)
	}
	return string(data)
}

// TestNobodyReadsARefusal verifies that a daemon that cannot join ends although its standard error
// is full.
func TestNobodyReadsARefusal(t *testing.T) {
	takesSeconds(t)
	t.Parallel()
	j := newRealJob(t, 2, "").all(func(c *deps.Config) { c.Times.Join = time.Second })
	_, stderr := pipe.Unread(t)
	j.launch(1, stderr).wait()
	j.expect(-1, 66)

	refused := make(chan struct{})
	go func() {
		defer close(refused)
		console.ReportStartError(stderr, false, errors.New("no"), 64)
	}()
	select {
	case <-refused:
	case <-time.After(ceiling):
		t.Error("a refusal waits for its reader")
	}
}

// TestNobodyReadsASandbox verifies that the daemon of a sandbox reacts to SIGTERM although its
// standard error is full.
func TestNobodyReadsASandbox(t *testing.T) {
	takesSeconds(t)
	t.Parallel()
	j := newRealJob(t, 1, "").all(func(c *deps.Config) { c.Times.Join = time.Second })
	j.roles[0], j.configs[0].Roles.Step = roles.RoleSandbox, roles.SandboxStep
	_, stderr := pipe.Unread(t)
	j.launch(0, stderr).wait()
	j.expect(66)
}
