package local

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/jobtest"
	"github.com/bringupd/bringupd/test/users"
)

// TestHeadEndsFirst checks that a head which fails before there is a run ends the other daemons,
// too. Its log directory has no space for the run directory, and the other daemons would wait for
// it until the join timeout of two minutes.
func TestHeadEndsFirst(t *testing.T) {
	users.Need(t) // mounting needs root
	dir := t.TempDir()
	const full = `mount -t tmpfs -o mode=0700,size=1m,nr_inodes=5 none "$1" && shift && exec "$@"`
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	job := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", full, "sh", dir,
		jobtest.Bringupd, "local", "--nodes=3", "--log-dir="+dir, "--", "true")
	began := time.Now()
	out, err := job.CombinedOutput()
	if code := job.ProcessState.ExitCode(); code != 66 ||
		!strings.Contains(string(out), "the head ended before the run started") {
		t.Errorf("it ended with %d (%v) after %s:\n%s", code, err, time.Since(began), out)
	}
}
