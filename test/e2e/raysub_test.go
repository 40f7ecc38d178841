//go:build testbed && ray

package e2e

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// bareSrun is an srun without containers: it records pyxis' flags and drops them, and drops --pty,
// because there is no terminal.
const bareSrun = `#!/bin/bash
flags=() args=()
for arg; do case $arg in --*container-*) flags+=("$arg") ;; --pty) ;; *) args+=("$arg") ;; esac; done
echo "${flags[*]}" >>"$CONTAINED"
exec REAL "${args[@]}"
`

// submitRaySub submits ray.sub on two nodes. The job's logs are in the returned directory.
func (bed *lane) submitRaySub(t *testing.T, env map[string]string) (b *batchJob, logs,
	contained string) {
	t.Helper()
	real, err := exec.LookPath("srun")
	must(t, err)
	path := filepath.Join(bed.Bin(), t.Name())
	bed.makeDir(t, path)
	must(t, os.WriteFile(filepath.Join(path, "srun"),
		[]byte(strings.Replace(bareSrun, "REAL", real, 1)), 0o755))
	contained = filepath.Join(path, "contained")
	bed.setenv("CONTAINED", contained)
	bed.setenv("BRINGUPD_GPU_CHECK", "off")
	bed.setenv("GPUS_PER_NODE", "2")
	bed.setenv("UV_CACHE_DIR", "/of/the/host")
	base := bed.place(t)
	bed.setenv("BASE_LOG_DIR", base)
	for name, value := range env {
		bed.setenv(name, value)
	}
	b, _ = bed.submitRayBy(t, "ray.sub", []string{"--nodes=2", "--nodelist=n[0-1]"}, path)
	return b, filepath.Join(base, b.id+"-logs"), contained
}

// nemoRL is the output of testdata/nemo_rl.py.
type nemoRL struct {
	Resources map[string]float64
	Ports     []int
	Nodes     []struct {
		Host     string
		TopoRank float64 `json:"topo_rank"`
		Launcher []string
		Setup    string
	}
	Epochs *bool `json:"epochs in order"`
	Env    map[string]*string
}

func (n nemoRL) hosts() (hosts []string) {
	for _, node := range n.Nodes {
		hosts = append(hosts, node.Host)
	}
	return hosts
}

// TestRaySub checks a job like those of NeMo RL, with its own sandboxes: it finds everything that
// it reads from its cluster and its environment, its logs have the names that its tools expect, and
// its exit code is the job's.
func TestRaySub(t *testing.T) {
	bed := claim(t, fewNodes)
	uv := bed.place(t)
	script := copyFile(t, "testdata/nemo_rl.py", bed.Bin())
	b, logs, contained := bed.submitRaySub(t, map[string]string{
		"COMMAND": "exec 3<>/dev/tcp/localhost/6000 && python " + script +
			"\necho to the log >&2; exit 3",
		"DASHBOARD_PORT":        "off",
		"SETUP_COMMAND":         "hostname >/tmp/of-setup",
		"OF_SETUP":              "/tmp/of-setup",
		"CONTAINER":             "nemo.sqsh",
		"MOUNTS":                "/data:/data",
		"UV_CACHE_DIR_OVERRIDE": uv,
		"SANDBOX_CONTAINER":     "sandbox.sqsh",
		"SANDBOX_COMMAND": `echo "$OF_THE_USER $SANDBOX_WORKER_BASE_PORT" >"$SANDBOX_PORTS_DIR/told-$(hostname)"; ` +
			`exec python3 -m http.server "$NGINX_PORT"`,
		"SANDBOX_ENV_VARS":     "OF_THE_USER=hello",
		"SANDBOX_EXTRA_MOUNTS": "/code:/code",
	})
	result := resultWithin(t, logs)
	said, _ := os.ReadFile(filepath.Join(logs, "ray-driver.log"))
	if errors, _ := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err")); result.Code != 3 {
		t.Fatalf("the job ended with %d: %s\n%s\n%s", result.Code, result.Reason, said, errors)
	}
	var found nemoRL
	printed, rest, _ := strings.Cut(string(said), "\n")
	if err := json.Unmarshal([]byte(printed), &found); err != nil ||
		!strings.Contains(rest, "to the log\n") {
		t.Fatalf("ray-driver.log: %v\n%s", err, said)
	}
	want := map[string]float64{"slurm_managed_ray_cluster": 2, "worker_units": 4, "GPU": 4,
		"ray_head": 0}
	if diff := cmp.Diff(want, found.Resources); diff != "" {
		t.Error(diff)
	}
	for i, node := range found.Nodes {
		if host := "n" + itoa(i); node.Host != host || node.Setup != host ||
			node.TopoRank != float64(i+1) || len(node.Launcher) > 0 {
			t.Errorf("node %d is %+v", i, node)
		}
	}
	if found.Epochs == nil || !*found.Epochs || len(found.Nodes) != 2 {
		t.Errorf("found %s", printed)
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(found.Env)) {
		if value := found.Env[name]; value != nil {
			env = append(env, name+"="+*value)
		}
	}
	if diff := cmp.Diff([]string{"OMP_NUM_THREADS=16", "RAY_ENABLE_UV_RUN_RUNTIME_ENV=0",
		"SLURM_JOB_ID=" + b.id, "SLURM_PROCID=0"}, env); diff != "" {
		t.Error(diff)
	}
	for name, line := range map[string]string{
		"ray-head.log": "Ray runtime started", "ray-worker-0.log": "Ray runtime started",
		"ray/cluster-0.1.log":   "Ray runtime started",
		"sandbox/sandbox-1.log": "Serving HTTP", "sandbox/told-n1": "hello 6001",
	} {
		if log, err := os.ReadFile(filepath.Join(logs, name)); err != nil ||
			!strings.Contains(string(log), line) {
			t.Errorf("%s: %v: %q lacks %q", name, err, log, line)
		}
	}
	lines, err := os.ReadFile(contained)
	must(t, err)
	const home, image, mounts = "--no-container-mount-home ", "--container-image=",
		" --container-mounts="
	both := logs + ":" + logs + "," + program + ":" + program
	calls := strings.Split(strings.TrimSpace(string(lines)), "\n")
	slices.Sort(calls)
	if diff := cmp.Diff([]string{
		home + image + "nemo.sqsh" + mounts + "/data:/data," + uv + ":/root/.cache/uv," + both +
			" --container-name=ray --container-workdir=" + bed.Share(),
		home + image + "sandbox.sqsh" + mounts + "/code:/code," + both,
	}, calls); diff != "" {
		t.Error(diff)
	}
}

// TestRaySubStaysUp checks a job without a command: the cluster stays up for programs and shells
// that use the attach script. The job has a separate head, fixed ports, and no containers. When a
// node dies, the job ends and names the node.
func TestRaySubStaysUp(t *testing.T) {
	bed := claim(t, fewNodes)
	b, logs, _ := bed.submitRaySub(t, map[string]string{
		"DEDICATED_RAY_HEAD": "1", "NODE_MANAGER_PORT": "1301", "RAY_SUB_DEBUG_ENV": "1",
		"WANDB_API_KEY": "hush",
	})
	attach := filepath.Join(bed.Share(), b.id+"-attach.sh")
	within(t, rayEnd, func() string {
		if seen := missing(attach); seen != "" {
			errors, _ := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
			return seen + "\n" + string(errors)
		}
		return ""
	})
	on := func(node, command, input string) string {
		t.Helper()
		cmd := bed.Command(t.Context(), "bash", attach, node)
		cmd.Env = append(cmd.Environ(), "COMMAND="+command)
		cmd.Stdin = strings.NewReader(input)
		code, out, errs, _ := timed(t, cmd)
		if code != 0 {
			t.Fatalf("%s ended with %d: %s%s", attach, code, out, errs)
		}
		return out
	}
	out := on("0", "python "+copyFile(t, "testdata/nemo_rl.py", bed.Bin()), "")
	var found nemoRL
	must(t, json.Unmarshal([]byte(out), &found))
	want := map[string]float64{"slurm_managed_ray_cluster": 2, "worker_units": 2, "GPU": 2,
		"ray_head": 1}
	if diff := cmp.Diff(want, found.Resources); diff != "" ||
		!slices.Equal(found.Ports, []int{1301, 1302}) ||
		!slices.Equal(found.hosts(), []string{"n1"}) {
		t.Errorf("found %s\n%s", out, diff)
	}
	if out := on("1", "", "hostname; ray status >/dev/null && echo found\n"); out != "n1\nfound\n" {
		t.Errorf("a shell on node 1 says %q", out)
	}
	if said, err := os.ReadFile(filepath.Join(logs, "ray", "setup-0001.log")); err != nil ||
		!strings.Contains(string(said), "GPUS_PER_NODE=2\n") ||
		strings.Contains(string(said), "hush") {
		t.Errorf("of its variables node 1 shows %q: %v", said, err)
	}
	kill(t, bed.processOf(t, 1, "raylet"), syscall.SIGKILL)
	if result := resultWithin(t, logs); result.Code != 77 || result.Cause == nil ||
		result.Cause.Host != "n1" {
		t.Errorf("the result is %+v, want 77 for n1", result)
	}
	within(t, ceiling, func() string {
		if missing(attach) == "" {
			return attach + " is still there"
		}
		return ""
	})
}

// resultWithin waits for the result of the newest run in a log directory.
func resultWithin(t *testing.T, logs string) (result record.Result) {
	t.Helper()
	path := filepath.Join(logs, "latest", signal.NameResult)
	within(t, rayEnd, func() string { return missing(path) })
	readJSON(t, path, &result)
	return result
}
