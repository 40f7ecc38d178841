//go:build testbed

package testbed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
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
	t.Run("names resolve", func(t *testing.T) {
		for i := range 3 {
			want := b.Address(i)
			if got := output(t,
				b.OnNode(t.Context(), 1, "getent", "hosts", b.Node(i))); !strings.HasPrefix(got,
				want) {
				t.Errorf("on n1 %s is %q, want %s", b.Node(i), got, want)
			}
		}
		output(t, b.Command(t.Context(), "getent", "hosts", "n2"))
	})
	t.Run("the host reaches the nodes", func(t *testing.T) {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(b.Address(2), "6818"), 5*time.Second)
		if err != nil {
			t.Fatalf("cannot reach n2's slurmd from the host: %v", err)
		}
		conn.Close()
	})
	t.Run("a file made on one node is listed on another", func(t *testing.T) { testSeen(t, b) })
	t.Run("a name looked for too early stays missing", func(t *testing.T) {
		early := b.OnNode(t.Context(), 1, "sh", "-c",
			"test ! -e early && echo looked && read -r _ && test ! -e early")
		testEarly(t, b, early)
	})
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
	t.Run("programs are seen by every node", func(t *testing.T) {
		program := filepath.Join(b.Bin(), "hello")
		if err := os.WriteFile(program, []byte("#!/bin/sh\necho hello\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := output(t, b.Command(t.Context(), "srun", "-N3", program)); got != strings.Repeat(
			"hello\n", 3) {
			t.Errorf("the program printed %q, want three times hello", got)
		}
	})
	t.Run("GPUs can be asked for", func(t *testing.T) {
		got := output(t, b.Command(t.Context(), "srun", "-N1", "--gpus-per-node=2", "printenv",
			"CUDA_VISIBLE_DEVICES"))
		if got != "0,1\n" {
			t.Errorf("CUDA_VISIBLE_DEVICES is %q, want 0,1", got)
		}
	})
	t.Run("scripts give their steps the GPUs of the job", func(t *testing.T) {
		testScriptGPUs(t, b)
	})
	t.Run("link down and up", func(t *testing.T) { testLink(t, b) })
	t.Run("hang and resume", func(t *testing.T) { testHang(t, b) })
	t.Run("TCP filtered and no longer", func(t *testing.T) { testFilter(t, b) })
	t.Run("slow and no longer", func(t *testing.T) { testSlow(t, b) })
	t.Run("lose and heal", func(t *testing.T) { testLose(t, b) })
	t.Run("requeue", func(t *testing.T) { testRequeue(t, b) })
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
			folder, "--wait", "--nodes=2", "--output="+out)
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

// testEarly verifies the negative cache: early stats a name, waits for a line, and stats the name
// again.
func testEarly(t *testing.T, b *Bed, early *exec.Cmd) {
	in, err := early.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	looked, err := early.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := early.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := looked.Read(make([]byte, 16)); err != nil {
		t.Fatalf("n1 saw the name before it was made: %v", err)
	}
	output(t, b.OnNode(t.Context(), 0, "touch", "early"))
	fmt.Fprintln(in)
	if err := early.Wait(); err != nil {
		t.Errorf("n1 finds the name by stat after it looked too early (%v): this share is no trap",
			err)
	}
	if got := output(t, b.OnNode(t.Context(), 1, "ls")); !strings.Contains(got, "early") {
		t.Errorf("n1 lists %q, want the name that it missed", got)
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

func testHang(t *testing.T, b *Bed) {
	job := startJob(t, b, 1)
	must(t, b.HangNode(t.Context(), 1))
	for _, p := range job.processes(t) {
		if p.State != "T" {
			t.Errorf("process %v of a hung node is not stopped", p)
		}
	}
	must(t, b.ResumeNode(t.Context(), 1))
	eventually(t, "the job's processes to go on", func() (bool, string) {
		processes := job.processes(t)
		stopped := func(p Process) bool { return p.State == "T" }
		return len(processes) > 0 && !slices.ContainsFunc(processes, stopped), fmt.Sprint(processes)
	})
	job.cancel(t)
}

func testLose(t *testing.T, b *Bed) {
	job := startJob(t, b, 2)
	must(t, b.LoseNode(t.Context(), 2))
	left, err := b.Processes(2)
	must(t, err)
	if len(left) != 1 || !left[0].Infra {
		t.Errorf("a lost node has the processes %v, want its holder only", left)
	}
	job.cancel(t)
	must(t, b.HealNode(t.Context(), 2))
	if got := output(t, b.Command(t.Context(), "srun", "-w", "n2", "ls")); !strings.Contains(
		got, "seen") {
		t.Errorf("the healed node lists %q, want the share", got)
	}
}

// testRequeue checks that a requeued job starts again soon, and as the same job.
func testRequeue(t *testing.T, b *Bed) {
	submit := b.Command(t.Context(), "sbatch", "--parsable", "--requeue",
		"--output=/dev/null", "-N2",
		"--wrap", `touch "restart-${SLURM_RESTART_COUNT:-0}"; sleep 600`)
	job := strings.TrimSpace(output(t, submit))
	started := func(name string) func() (bool, string) {
		return func() (bool, string) {
			_, err := os.Stat(filepath.Join(b.Share(), name))
			return err == nil, output(t, b.Command(t.Context(), "squeue"))
		}
	}
	eventually(t, "the job to start", started("restart-0"))
	must(t, b.Requeue(t.Context(), job))
	eventually(t, "the job to start again", started("restart-1"))
	output(t, b.Command(t.Context(), "scancel", job))
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
