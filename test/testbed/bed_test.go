//go:build testbed

package testbed

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain checks that the tests leave no goroutine, or is a testbed's owner that is killed.
func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) != "" {
		os.Exit(ownABed())
	}
	goleak.VerifyTestMain(m)
}

// TestBed checks all operations of a testbed on a single testbed of three nodes, because starting
// one for each check would take minutes.
func TestBed(t *testing.T) {
	b := start(t, Config{Nodes: 3, Share: StaleSSHFS, GPUs: 2})

	t.Run("srun reaches every node", func(t *testing.T) {
		names := strings.Fields(output(t, b.Command(t.Context(), "srun", "-N3", "hostname")))
		slices.Sort(names)
		if want := []string{"n0", "n1", "n2"}; !slices.Equal(names, want) {
			t.Errorf("srun hostname printed %q, want %q", names, want)
		}
	})
	t.Run("a file made on one node is listed on another", func(t *testing.T) { testSeen(t, b) })
	t.Run("temporary folders are a node's own", func(t *testing.T) {
		for _, folder := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
			name := filepath.Join(folder, "of-n0")
			output(t, b.OnNode(t.Context(), 0, "touch", name))
			if b.OnNode(t.Context(), 1, "test", "-e", name).Run() == nil {
				t.Errorf("n1 sees %s, which n0 made", name)
			}
			if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the host sees %s, which n0 made: %v", name, err)
			}
		}
	})
	t.Run("scripts give their steps the GPUs of the job", func(t *testing.T) {
		testScriptGPUs(t, b)
	})
	t.Run("link down and up", func(t *testing.T) { testLink(t, b) })
	t.Run("TCP filtered and no longer", func(t *testing.T) { testFilter(t, b) })
	t.Run("a second bed", func(t *testing.T) { testSecondBed(t, b, Local) })
	t.Run("close leaves nothing", func(t *testing.T) { testClose(t, b) })
}

// testScriptGPUs submits each of the documented batch scripts with --exclusive only. A program in
// place of bringupd prints the GPUs of the step on each node.
func testScriptGPUs(t *testing.T, b *Bed) {
	folder := filepath.Join(b.Bin(), "gpus-of-steps")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "bringupd")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"GPUs ${SLURM_STEP_GPUS-none}\"\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob("../../deploy/slurm/*.sbatch")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("there are no scripts: %v", err)
	}
	for _, script := range scripts {
		out := filepath.Join(b.Share(), filepath.Base(script)+".out")
		cmd := b.Command(t.Context(), "sh", "-c",
			`PATH="$0:$PATH" SANDBOX_CMD=true exec sbatch "$@"`,
			folder, "--wait", "--nodes=2", "--output="+out, "/dev/stdin", "true")
		if cmd.Stdin, err = os.Open(script); err != nil {
			t.Fatal(err)
		}
		output(t, cmd)
		said, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(said), "GPUs 0,1\n"); n < 2 ||
			strings.Contains(string(said), "none") {
			t.Errorf("%s: the steps tell %q, want the GPUs 0,1 on both nodes",
				filepath.Base(script), said)
		}
	}
}

func testSeen(t *testing.T, b *Bed) {
	output(t, b.OnNode(t.Context(), 0, "sh", "-c", "echo hello >seen"))
	if got := output(t, b.OnNode(t.Context(), 1, "ls")); !strings.Contains(got, "seen") {
		t.Errorf("n1 lists %q, want the file that n0 made", got)
	}
	if got, err := os.ReadFile(filepath.Join(b.Share(), "seen")); string(got) != "hello\n" {
		t.Errorf("the host reads %q, %v, want what n0 wrote", got, err)
	}
	if got := output(t, b.Command(t.Context(), "cat", "seen")); got != "hello\n" {
		t.Errorf("ctl reads %q, want what n0 wrote", got)
	}
}

func testLink(t *testing.T, b *Bed) {
	reaches := func() bool {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(b.Address(1), "6818"),
			500*time.Millisecond)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	}
	must(t, b.LinkDown(t.Context(), 1))
	if reaches() {
		t.Errorf("n1 can be reached with its link down")
	}
	must(t, b.LinkUp(t.Context(), 1))
	eventually(t, "n1 to be reached again", func() (bool, string) { return reaches(), "" })
	output(t, b.OnNode(t.Context(), 1, "ls"))
}

func testSecondBed(t *testing.T, first *Bed, share Share) {
	second := start(t, Config{Nodes: 1, Share: share})
	if got := output(t, second.Command(t.Context(), "srun", "hostname")); got != "n0\n" {
		t.Errorf("srun hostname on the second bed printed %q, want n0", got)
	}
	output(t, second.OnNode(t.Context(), 0, "touch", "second"))
	if _, err := os.Stat(filepath.Join(second.Share(), "second")); err != nil {
		t.Errorf("the host does not see what a node of the second bed made: %v", err)
	}
	if got := output(t, first.OnNode(t.Context(), 0, "ls")); strings.Contains(got, "second") {
		t.Errorf("the first bed sees a file of the second: %q", got)
	}
	testClose(t, second)
	output(t, first.Command(t.Context(), "srun", "-N3", "true"))
}

func testClose(t *testing.T, b *Bed) {
	startJob(t, b, 0)
	must(t, b.Close())
	must(t, b.Close())
	assertGone(t, b.slot)
}
