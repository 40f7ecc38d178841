package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/hostile"
	"github.com/bringupd/bringupd/test/jobtest"
)

// stuckTime is the maximum time for the end of a daemon with a rank that not even KILL ends: 20 s for
// KILL and 5 s for the daemon's own end, plus a margin for a busy machine.
const stuckTime = 45 * time.Second

// TestStuckRank checks that all daemons of a job end, with the code of its cause, if not even KILL
// ends one of the ranks, and that the daemon of that rank reports it.
func TestStuckRank(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(path("folder"), 0o700))
	must(os.Mkdir(path("mount"), 0o700))
	must(os.WriteFile(path("folder/file"), nil, 0o600))
	disk, err := server.Mount(t.Context(), path("folder"), path("mount"), hostile.Knobs{})
	must(err)
	mark := jobtest.Mark("FAULTS=" + dir)
	t.Cleanup(func() {
		mark.Kill()
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	must(disk.Stall(hostile.Held))
	ctx, cancel := context.WithTimeout(t.Context(), ceiling+stuckTime)
	t.Cleanup(cancel)
	daemons, said := make([]*exec.Cmd, 2), make([]bytes.Buffer, 2)
	for node := range daemons {
		cmd := exec.CommandContext(ctx, jobtest.Bringupd, "run", fmt.Sprint("--rank=", node), "--nnodes=2",
			"--job-id=j", "--ranks-per-node=1", "--oversubscribe", "--log-dir="+path("logs"), "--", "sh", "-c",
			`[ $RANK = 0 ] || exec cat "$1/mount/file"; until [ -e "$1/taken" ]; do sleep 0.1; done; exit 3`, "sh", dir)
		cmd.Env = append(jobtest.Environ(), "FAULTS="+dir, "PATH="+os.Getenv("PATH"))
		cmd.Stderr = &said[node]
		must(cmd.Start())
		daemons[node] = cmd
	}
	for deadline := time.Now().Add(ceiling); ; time.Sleep(step) {
		taken, err := disk.Taken()
		must(err)
		if taken > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("rank 1 has not opened the file")
		}
	}
	must(os.WriteFile(path("taken"), nil, 0o600))
	begin := time.Now()
	for node, cmd := range daemons {
		_ = cmd.Wait()
		if code := jobtest.ExitCode(cmd.ProcessState); code != 3 {
			t.Errorf("the daemon of node %d has ended with %d:\n%s", node, code, &said[node])
		}
	}
	if took := time.Since(begin); took > stuckTime {
		t.Errorf("it took %s to end, want %s at most", took, stuckTime)
	}
	if !strings.Contains(said[1].String(), "left running on node 1") {
		t.Errorf("the daemon of node 1 does not report its rank:\n%s", &said[1])
	}
	must(disk.Release())
}
