//go:build testbed && ray

package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// rayEnd limits the duration of a job with a real Ray on this machine's few cores.
const rayEnd = 4 * time.Minute

// rayProgram returns the path of the real ray, from BRINGUPD_TEST_RAY.
func rayProgram(t *testing.T) string {
	t.Helper()
	path := os.Getenv("BRINGUPD_TEST_RAY")
	if path == "" {
		t.Fatal("cannot run without a Ray: BRINGUPD_TEST_RAY must name its ray program (make test installs one)")
	}
	return path
}

// submitRay submits the batch script that bringupd prints, unchanged, from a pipe.
func (bed *lane) submitRay(t *testing.T, path string, driver ...string) (b *batchJob, logs string) {
	t.Helper()
	return bed.submitRayBy(t, "ray", []string{"--nodelist=n[0-3]"}, path, driver...)
}

func (bed *lane) submitRayBy(t *testing.T, name string, flags []string, path string,
	driver ...string) (b *batchJob, logs string) {
	t.Helper()
	dir := bed.place(t)
	bed.makeDir(t, dir)
	logs = filepath.Join(dir, "logs")
	bed.setenv("LOG_DIR", logs)
	bed.prependPath(beds.bin(), path, filepath.Dir(rayProgram(t)))
	return bed.submitPrinted(t, dir, name, flags, driver), logs
}

// endOf waits for the result of a job's first step.
func endOf(t *testing.T, b *batchJob, logs string) record.Result {
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
	var result record.Result
	readJSON(t, path, &result)
	return result
}

// TestRayRunsATaskOnEveryNode checks the main use case: a real Ray cluster of four nodes, and a
// driver that finds all of them.
func TestRayRunsATaskOnEveryNode(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"0", "42"} {
		t.Run("exit "+code, func(t *testing.T) {
			bed := claim(t, fewNodes)
			bed.setenv("EXIT_WITH", code)
			bed.setenv("BRINGUPD_RAY_LOGS", map[string]string{"0": "end", "42": "failure"}[code])
			driver := copyFile(t, "../../examples/ray_hosts.py", bed.Bin())
			// Ray's sockets would not fit below a path of this length, on the nodes' own disk.
			temp := filepath.Join(bed.Bin(), strings.Repeat("t", 60))
			bed.makeDir(t, temp)
			bed.setenv("TMPDIR", temp)
			b, logs := bed.submitRay(t, "", "python", driver)
			result := endOf(t, b, logs)
			if itoa(result.Code) != code {
				out, _ := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
				t.Fatalf("the job ended with %d: %s\n%s", result.Code, result.Reason, out)
			}
			out, err := os.ReadFile(b.out)
			must(t, err)
			hosts := strings.Fields(string(out))
			if want := []string{"n0", "n1", "n2", "n3"}; !slices.Equal(hosts, want) {
				t.Errorf("the driver printed %v, want %v", hosts, want)
			}
			// Ray's own logs outlive its private directories if they are wanted. They are copied while the
			// result is written.
			raylets := filepath.Join(logs, b.id+".0", signal.LogsDir, "ray-*.d", "raylet.out")
			want := map[string]int{"0": 4, "42": 0}[code]
			eventually(t, func() string {
				kept, _ := filepath.Glob(raylets)
				if len(kept) != want {
					return fmt.Sprintf("the raylets' logs are kept in %v", kept)
				}
				return ""
			})
		})
	}
}

// TestRayLetsOnlyTheJobIn checks that Ray refuses clients without the run's token on every
// interface, and that the token does not hinder the job's own programs.
func TestRayLetsOnlyTheJobIn(t *testing.T) {
	bed := claim(t, fewNodes)
	bed.prependPath(filepath.Dir(rayProgram(t)))
	flags := []string{"--framework=ray"}
	for _, arg := range []string{"--include-dashboard=true", "--dashboard-port=8299",
		"--ray-client-server-port=10001"} {
		flags = append(flags, "--ray-head-args="+arg)
	}
	j := bed.start(t, launch{nodes: 1, flags: flags,
		driver: []string{"python", copyFile(t, "testdata/ray_guests.py", bed.Bin())}})
	within(t, 2*rayEnd, func() string {
		return missing(filepath.Join(j.runDir(), signal.NameResult))
	})
	j.wantCode(0)
	want := []string{
		"the job's own: let in", "the job's client: let in", "ray status: let in",
		"ray job submit: let in",
		"a stranger: refused", "a stranger's status: refused", "a stranger's job: refused",
		"a stranger's browser: 401", "the token: 64 digits, mode 600",
		"read in the run directory: []", "read in command lines: []", "",
	}
	if diff := cmp.Diff(want, strings.Split(j.stdout.String(), "\n")); diff != "" {
		t.Errorf("%s\n%s", diff, &j.stderr)
	}
	var head record.Head
	readJSON(t, filepath.Join(j.runDir(), signal.ControlDir, signal.NameHead), &head)
	if head.Dashboard != "http://127.0.0.1:8299" {
		t.Errorf("status shows the dashboard at %q", head.Dashboard)
	}
}

// TestRayWithASandboxOfItsOwn checks Ray on two nodes and a sandbox in a separate step: the driver
// starts when both are ready, and finds the nodes of the one and the port of the other. A command from
// outside finds the cluster, too.
func TestRayWithASandboxOfItsOwn(t *testing.T) {
	bed := claim(t, fewNodes)
	bed.setenv("SANDBOX_CMD", "exec python3 -m http.server 6000")
	bed.setenv("SANDBOX_READY", "tcp:6000")
	driver := copyFile(t, "../../examples/ray_hosts.py", bed.Bin())
	b, logs := bed.submitRayBy(t, "ray-sandbox",
		[]string{"--nodes=2", "--nodelist=n[0-1]"}, "",
		"bash", "-c", "exec 3<>/dev/tcp/localhost/6000 && [ $RAY_ADDRESS = $("+program+
			" exec --node=1 $BRINGUPD_RUN_DIR -- sh -c 'echo $RAY_ADDRESS') ] && exec python "+driver)
	within(t, rayEnd, func() string {
		if results, _ := filepath.Glob(filepath.Join(logs, b.id+".*", signal.NameResult)); len(
			results) == 0 {
			return "there is no result"
		}
		return ""
	})
	result := resultOf(t, b, logs)
	out, err := os.ReadFile(b.out)
	must(t, err)
	if hosts := strings.Fields(string(out)); result.Code != 0 ||
		!slices.Equal(hosts, []string{"n0", "n1"}) {
		errors, _ := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
		t.Errorf("the job ended with %d: %s; the driver printed %v\n%s", result.Code, result.Reason,
			hosts, errors)
	}
}

// TestRayStartThatFails checks that a job ends at once, and names the worker, if a worker's ray
// start fails permanently.
func TestRayStartThatFails(t *testing.T) {
	bed := claim(t, fewNodes)
	path := filepath.Join(bed.Bin(), "failing")
	bed.makeDir(t, path)
	at := bed.place(t)
	script := "#!/bin/sh\n[ \"$(hostname)\" != n2 ] || { echo 'no such thing as a free raylet'; " +
		"date > " + at + "; exit 1; }\n" +
		"exec " + rayProgram(t) + " \"$@\"\n"
	must(t, os.WriteFile(filepath.Join(path, "ray"), []byte(script), 0o755))
	b, logs := bed.submitRay(t, path, "sleep", "1000")
	within(t, rayEnd, func() string { return missing(at) })
	failed := time.Now()
	within(t, rayEnd, func() string {
		return missing(filepath.Join(logs, b.id+".0", signal.ControlDir, signal.NameHeadFinished))
	})
	if took := time.Since(failed); took > 5*time.Second {
		said, _ := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
		t.Errorf("the job ended %s after the failure, want at most 5 s\n%s", took, said)
	}
	result := endOf(t, b, logs)
	if result.Code != 77 || result.Cause == nil || result.Cause.NodeIndex != 2 ||
		result.Cause.Host != "n2" {
		t.Fatalf("the result is %+v, want 77 for node 2 (n2)", result)
	}
	if want := "no such thing as a free raylet"; !slices.Contains(result.Cause.Lines, want) {
		t.Errorf("the last lines are %q, want %q among them", result.Cause.Lines, want)
	}
}

// TestRayStartThatFailsWithSpare checks the same with a spare: the job continues, and Ray counts
// the remaining three nodes.
func TestRayStartThatFailsWithSpare(t *testing.T) {
	bed := claim(t, fewNodes)
	path := filepath.Join(bed.Bin(), "failing-n1")
	bed.makeDir(t, path)
	script := "#!/bin/sh\n[ \"$(hostname)\" != n1 ] || { sleep 5; echo 'no such thing as a free raylet'; exit 1; }\n" +
		"exec " + rayProgram(t) + " \"$@\"\n"
	ray := filepath.Join(path, "ray")
	must(t, os.WriteFile(ray, []byte(script), 0o755))
	bed.prependPath(path + ":" + filepath.Dir(rayProgram(t)))
	bed.setenv("EXIT_WITH", "0")
	j := bed.start(t, launch{
		nodes: 4,
		flags: []string{"--nnodes=2:3", "--framework=ray",
			// The spare joins late, when the other nodes are up except for one.
			`--setup-cmd=[ "$BRINGUPD_LAUNCH_RANK" != 3 ] || sleep 3`},
		driver: []string{"python", copyFile(t, "../../examples/ray_hosts.py", bed.Bin())},
	})
	within(t, rayEnd, func() string {
		return missing(filepath.Join(j.runDir(), signal.NameResult))
	})
	j.wantCode(0)
	if hosts := strings.Fields(j.stdout.String()); !slices.Equal(hosts,
		[]string{"n0", "n2", "n3"}) {
		t.Errorf("the driver printed %v\n%s", hosts, &j.stderr)
	}
	result := j.result()
	if !slices.Equal(result.Team, []int{0, 3, 2}) || len(result.Dropped) != 1 ||
		result.Dropped[0].Host != "n1" {
		t.Errorf("the result is %+v", result)
	}
}

// rayKills is for manual runs; the default is enough for CI.
var rayKills = flag.Int("ray-kills", 1, "how often TestRayDeaths kills each part of Ray")

// victim is a driver with an actor on node n1. It exits with 3 when the actor has died.
const victim = `import ray, sys, time
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init(logging_level="ERROR", log_to_driver=False)
@ray.remote(num_cpus=0)
class Victim:
    def live(self): time.sleep(1000)
node = [n["NodeID"] for n in ray.nodes() if n["NodeManagerHostname"] == "n1"][0]
victim = Victim.options(scheduling_strategy=On(node, soft=False)).remote()
try: ray.get(victim.live.remote())
except ray.exceptions.RayActorError: sys.exit(3)`

// TestRayDeaths kills each part of Ray while the driver runs, and checks that the part is named and
// that its logs outlive the private directory. Failures that Ray handles itself must not end the
// job.
func TestRayDeaths(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		node    int
		process string // first word of its command line, without the directory
		code    int
		log     string // the log that must be kept
		says    string
	}{
		{"raylet", 1, "raylet", 77, "ray-worker-0001.d/raylet.out", "raylet"},
		{"GCS", 0, "gcs_server", 77, "ray-head.d/gcs_server.out", "gcs_server"},
		{"dashboard agent", 1, "ray::DashboardAgent", 77,
			"ray-worker-0001.d/dashboard_agent.log", "raylet"},
		{"worker process", 1, "ray::Victim", 3, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			bed.prependPath(filepath.Dir(rayProgram(t)))
			for range *rayKills {
				j := bed.start(t, launch{nodes: 2, flags: []string{"--framework=ray"},
					driver: []string{"python", "-c", victim}})
				within(t, rayEnd, func() string {
					return missing(filepath.Join(j.runDir(), signal.ControlDir,
						signal.NameGateOpen))
				})
				within(t, rayEnd, func() string {
					if bed.processOf(t, 1, "ray::Victim") == 0 {
						return "there is no actor"
					}
					return ""
				})
				kill(t, bed.processOf(t, tc.node, tc.process), syscall.SIGKILL)
				killed := time.Now()
				within(t, rayEnd, func() string {
					return missing(filepath.Join(j.runDir(), signal.NameResult))
				})
				t.Logf("the result was there after %s", time.Since(killed))
				j.wantCode(tc.code)
				if tc.log == "" {
					continue
				}
				result := j.result()
				if result.Cause == nil || result.Cause.Kind != health.ServiceDied ||
					result.Cause.NodeIndex != tc.node ||
					!strings.Contains(strings.Join(append(result.Cause.Lines, result.Cause.Message),
						"\n"), tc.says) {
					t.Errorf("the result is %+v, want the service of node %d, with %q", result,
						tc.node, tc.says)
				}
				within(t, rayEnd, func() string {
					return missing(filepath.Join(j.runDir(), signal.LogsDir, tc.log))
				})
			}
		})
	}
}

// processOf returns the pid of a Ray process on a node, or 0 if there is none.
func (bed *lane) processOf(t *testing.T, node int, name string) int {
	t.Helper()
	processes, err := bed.Processes(node)
	must(t, err)
	for _, p := range processes {
		if len(p.Args) > 0 && strings.HasPrefix(filepath.Base(p.Args[0]), name) {
			return p.PID
		}
	}
	return 0
}

// TestRayRanks checks that each rank of a world is a driver of the cluster, connected to the raylet
// of its own node. Ray searches all visible processes for the raylet, and the nodes of a testbed
// see each other's processes, hence the containers.
func TestRayRanks(t *testing.T) {
	bed := claim(t, fewNodes)
	const rank = `import os, ray
ray.init(logging_level="error")
own = ray.get_runtime_context().get_node_id()
nodes = ray.nodes()
hosts = [node["NodeManagerHostname"] for node in nodes if node["NodeID"] == own]
print(os.environ["RANK"], *hosts, len(nodes))`
	bed.prependPath(filepath.Dir(rayProgram(t)))
	j := bed.start(t, launch{
		nodes: 2, container: []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"},
		flags:  []string{"--framework=ray", "--ranks-per-node=1"},
		driver: []string{filepath.Join(filepath.Dir(rayProgram(t)), "python"), "-c", rank},
	})
	within(t, rayEnd, func() string {
		select {
		case <-j.ended:
			return ""
		default:
			return "it has not ended\n" + j.stderr.String()
		}
	})
	if j.wantCode(0); sortedLines(j.stdout.String()) != "0 n0 2\n1 n1 2\n" {
		t.Errorf("the ranks said %q", j.stdout.String())
	}
}
