//go:build testbed

package testbed

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func start(t *testing.T, cfg Config) *Bed {
	t.Helper()
	cfg.Log = t.Output()
	b, err := Start(t.Context(), cfg)
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	return b
}

// job is a sleeping job on one node.
type job struct {
	bed  *Bed
	node int
	id   string
}

func startJob(t *testing.T, b *Bed, node int) *job {
	t.Helper()
	submit := b.Command(t.Context(), "sbatch", "--parsable", "--no-requeue", "--output=/dev/null",
		"-w", b.Node(node),
		"--wrap", "srun sleep 600")
	j := &job{bed: b, node: node, id: strings.TrimSpace(output(t, submit))}
	eventually(t, "the job's step to run", func() (bool, string) {
		processes := j.processes(t)
		sleeps := func(p Process) bool {
			return strings.HasSuffix(strings.Join(p.Args, " "), "/sleep 600")
		}
		return slices.ContainsFunc(processes, sleeps), fmt.Sprint(processes)
	})
	return j
}

// processes returns the job's remaining processes on its node.
func (j *job) processes(t *testing.T) []Process {
	t.Helper()
	processes, err := j.bed.Processes(j.node)
	must(t, err)
	return slices.DeleteFunc(processes, func(p Process) bool { return p.Infra })
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v: %s%s", cmd.Args, err, out, stderr.String())
	}
	return string(out)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a condition. The function holds also returns what it observed.
func eventually(t *testing.T, what string, holds func() (bool, string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var seen string
	err := poll(ctx, func() (ok bool, _ error) {
		ok, seen = holds()
		return ok, nil
	})
	if err != nil {
		t.Fatalf("waited in vain for %s: %v; last seen: %s", what, err, seen)
	}
}
