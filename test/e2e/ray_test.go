//go:build testbed && ray

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// rayEnd bounds a job with a real Ray on this machine's few cores.
const rayEnd = 4 * time.Minute

// rayProgram is the real ray, which BRINGUPD_TEST_RAY names.
func rayProgram(t *testing.T) string {
	t.Helper()
	path := os.Getenv("BRINGUPD_TEST_RAY")
	if path == "" {
		t.Fatal("cannot run without a Ray: BRINGUPD_TEST_RAY must name its ray program (make test installs one)")
	}
	return path
}

// submitRay submits the script that users copy, as it stands.
func submitRay(t *testing.T, path string, driver ...string) (b *batchJob, logs string) {
	t.Helper()
	return submitRayBy(t, "ray.sbatch", []string{"--nodelist=n[0-3]"}, path, driver...)
}

func submitRayBy(t *testing.T, name string, flags []string, path string, driver ...string) (b *batchJob, logs string) {
	t.Helper()
	dir := place(t)
	must(t, os.MkdirAll(dir, 0o755))
	logs = filepath.Join(dir, "logs")
	script := copyFile(t, "../../deploy/slurm/"+name, dir)
	t.Setenv("LOG_DIR", logs)
	t.Setenv("PATH", strings.Join([]string{bed.Bin(), path, filepath.Dir(rayProgram(t)), os.Getenv("PATH")}, ":"))
	return submitFile(t, dir, slices.Concat(flags, []string{script}, driver)...), logs
}

// endOf waits for the result of a job's first step.
func endOf(t *testing.T, b *batchJob, logs string) signal.Result {
	t.Helper()
	path := filepath.Join(logs, b.id+".0", signal.NameResult)
	within(t, rayEnd, func() string {
		if seen := missing(path); seen != "" {
			out, _ := os.ReadFile(b.out)
			errors, _ := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
			return fmt.Sprintf("%s\n%s\n%s", seen, out, errors)
		}
		return ""
	})
	var result signal.Result
	readJSON(t, path, &result)
	return result
}

// The main job: a real Ray of four nodes, and a driver that finds all of them.
func TestRayRunsATaskOnEveryNode(t *testing.T) {
	for _, code := range []string{"0", "42"} {
		t.Run("exit "+code, func(t *testing.T) {
			t.Setenv("EXIT_WITH", code)
			driver := copyFile(t, "../../examples/ray_hosts.py", bed.Bin())
			b, logs := submitRay(t, "", "python", driver)
			result := endOf(t, b, logs)
			if itoa(result.Code) != code {
				out, _ := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
				t.Fatalf("the job ended with %d: %s\n%s", result.Code, result.Why, out)
			}
			out, err := os.ReadFile(b.out)
			must(t, err)
			hosts := strings.Fields(string(out))
			if want := []string{"n0", "n1", "n2", "n3"}; !slices.Equal(hosts, want) {
				t.Errorf("the driver printed %v, want %v", hosts, want)
			}
		})
	}
}

// Ray on two nodes, and a sandbox in a step of its own: the driver, which is started
// when both are ready, finds the nodes of the one and the port of the other.
func TestRayWithASandboxOfItsOwn(t *testing.T) {
	t.Setenv("SANDBOX_CMD", "exec python3 -m http.server 6000")
	t.Setenv("SANDBOX_READY", "tcp:6000")
	driver := copyFile(t, "../../examples/ray_hosts.py", bed.Bin())
	b, logs := submitRayBy(t, "ray-sandbox.sbatch", []string{"--nodes=2", "--nodelist=n[0-1]"}, "",
		"bash", "-c", "exec 3<>/dev/tcp/localhost/6000 && exec python "+driver)
	within(t, rayEnd, func() string {
		if results, _ := filepath.Glob(filepath.Join(logs, b.id+".*", signal.NameResult)); len(results) == 0 {
			return "there is no result"
		}
		return ""
	})
	result := resultOf(t, b, logs)
	out, err := os.ReadFile(b.out)
	must(t, err)
	if hosts := strings.Fields(string(out)); result.Code != 0 || !slices.Equal(hosts, []string{"n0", "n1"}) {
		errors, _ := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
		t.Errorf("the job ended with %d: %s; the driver printed %v\n%s", result.Code, result.Why, hosts, errors)
	}
}

// One worker's ray start fails for good: the job ends at once, and names it.
func TestRayStartThatFails(t *testing.T) {
	path := filepath.Join(bed.Bin(), "failing")
	must(t, os.MkdirAll(path, 0o755))
	at := place(t)
	script := "#!/bin/sh\n[ \"$(hostname)\" != n2 ] || { echo 'no such thing as a free raylet'; date > " + at + "; exit 1; }\n" +
		"exec " + rayProgram(t) + " \"$@\"\n"
	must(t, os.WriteFile(filepath.Join(path, "ray"), []byte(script), 0o755))
	b, logs := submitRay(t, path, "sleep", "1000")
	within(t, rayEnd, func() string { return missing(at) })
	failed := time.Now()
	within(t, rayEnd, func() string { return missing(filepath.Join(logs, b.id+".0", signal.Control, "over")) })
	if took := time.Since(failed); took > 5*time.Second {
		said, _ := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
		t.Errorf("the job ended %s after the failure, want at most 5 s\n%s", took, said)
	}
	result := endOf(t, b, logs)
	if result.Code != 77 || result.Cause == nil || result.Cause.Rank != 2 || result.Cause.Host != "n2" {
		t.Fatalf("the result is %+v, want 77 for rank 2 (n2)", result)
	}
	if want := "no such thing as a free raylet"; !slices.Contains(result.Cause.Lines, want) {
		t.Errorf("the last lines are %q, want %q among them", result.Cause.Lines, want)
	}
}

// The same with a spare: the job goes on, and Ray counts the three that are left.
func TestRayStartThatFailsWithSpare(t *testing.T) {
	path := filepath.Join(bed.Bin(), "failing-n1")
	must(t, os.MkdirAll(path, 0o755))
	script := "#!/bin/sh\n[ \"$(hostname)\" != n1 ] || { sleep 5; echo 'no such thing as a free raylet'; exit 1; }\n" +
		"exec " + rayProgram(t) + " \"$@\"\n"
	ray := filepath.Join(path, "ray")
	must(t, os.WriteFile(ray, []byte(script), 0o755))
	t.Setenv("PATH", filepath.Dir(rayProgram(t))+":"+os.Getenv("PATH"))
	t.Setenv("EXIT_WITH", "0")
	j := start(t, launch{
		nodes: 4,
		flags: []string{"--nnodes=2:3", "--framework=ray", "--ray=" + ray,
			// The spare comes when the team is there, and up but for one.
			`--setup-cmd=[ "$BRINGUPD_LAUNCH_RANK" != 3 ] || sleep 3`},
		driver: []string{"python", copyFile(t, "../../examples/ray_hosts.py", bed.Bin())},
	})
	within(t, rayEnd, func() string { return missing(filepath.Join(j.runDir(), signal.NameResult)) })
	j.wantCode(0)
	if hosts := strings.Fields(j.stdout.String()); !slices.Equal(hosts, []string{"n0", "n2", "n3"}) {
		t.Errorf("the driver printed %v\n%s", hosts, &j.stderr)
	}
	result := j.result()
	if !slices.Equal(result.Team, []int{0, 3, 2}) || len(result.Dropped) != 1 || result.Dropped[0].Host != "n1" {
		t.Errorf("the result is %+v", result)
	}
}

// A raylet dies under the driver; Ray itself would take its time to notice.
func TestARayletThatDies(t *testing.T) {
	b, logs := submitRay(t, "", "sleep", "1008")
	within(t, rayEnd, func() string { return missing(filepath.Join(logs, b.id+".0", signal.Control, signal.NameGo)) })
	find(t, 0, "sleep", "1008")
	kill(t, raylet(t, 3), syscall.SIGKILL)
	result := endOf(t, b, logs)
	if result.Code != 77 || result.Cause == nil || result.Cause.Kind != string(health.ServiceDied) || result.Cause.Rank != 3 {
		t.Fatalf("the result is %+v, want 77 for rank 3", result)
	}
	// Ray's own logs outlive its private directory.
	kept := filepath.Join(logs, b.id+".0", signal.Logs, "ray-worker-0003.d", "raylet.out")
	within(t, rayEnd, func() string { return missing(kept) })
}

// raylet is the pid of a node's raylet.
func raylet(t *testing.T, node int) int {
	t.Helper()
	processes, err := bed.Processes(node)
	must(t, err)
	for _, p := range processes {
		if len(p.Args) > 0 && filepath.Base(p.Args[0]) == "raylet" {
			return p.PID
		}
	}
	t.Fatalf("no raylet on n%d: %v", node, processes)
	return 0
}
