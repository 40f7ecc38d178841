//go:build ray

package ray

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
)

// realRay starts services of an installed Ray, as the daemon would.
type realRay struct {
	t   *testing.T
	ray Cluster
}

func newRealRay(t *testing.T) realRay {
	program := os.Getenv("BRINGUPD_TEST_RAY")
	if program == "" {
		t.Fatal("set BRINGUPD_TEST_RAY to the ray command to test with")
	}
	small := []string{"--object-store-memory=80000000"}
	t.Setenv("PATH", filepath.Dir(program)+":"+os.Getenv("PATH"))
	return realRay{t: t, ray: Cluster{HeadArgs: small, WorkerArgs: small}}
}

func (r realRay) node(rank int) framework.Node {
	// t.TempDir() cannot be used: Ray's sockets need short paths.
	temp, err := os.MkdirTemp("", "bu-")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = os.RemoveAll(temp) })
	return framework.Node{
		RunName: "job.0", TeamIndex: rank, LaunchIndex: rank, Size: 2, Host: fmt.Sprintf("n%d", rank), Address: "127.0.0.1",
		TempDir: temp, CPUs: 1, GPUs: 0,
		NVLinkDomain: []string{"a-0", "b-1"}[min(rank, 1)],
		Environ: append(os.Environ(), "SLURM_JOB_ID=17", "SLURM_PROCID=0", "PMI_FD=9",
			"SLURM_TOPOLOGY_ADDR=block99000000.n1", "SLURM_TOPOLOGY_ADDR_PATTERN=block.node"),
	}
}

// realChild is a running service.
type realChild struct {
	t      *testing.T
	cmd    *exec.Cmd
	output *lockedBuffer
	ended  chan struct{} // closed when it has ended
}

func (r realRay) start(service *framework.Service) *realChild {
	r.t.Helper()
	argv := service.WarmCommand()
	if argv == nil {
		r.t.Fatalf("%s can't be started ahead of its time", service.Argv[0])
	}
	c := &realChild{t: r.t, cmd: exec.Command(argv[0], argv[1:]...), output: &lockedBuffer{}, ended: make(chan struct{})}
	c.cmd.Stdin = strings.NewReader(string(service.WarmInput) + "\n")
	c.cmd.Env = service.Env
	c.cmd.Stdout, c.cmd.Stderr = c.output, c.output
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.WaitDelay = time.Second
	if err := c.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() { _ = c.cmd.Wait(); close(c.ended) }()
	r.t.Cleanup(func() { c.signal(syscall.SIGKILL); <-c.ended })
	return c
}

func (c *realChild) signal(sig syscall.Signal) { _ = syscall.Kill(-c.cmd.Process.Pid, sig) }

// until waits until look returns nil, and returns the time that it took.
func (c *realChild) until(within time.Duration, look func(context.Context) error) time.Duration {
	c.t.Helper()
	begin := time.Now()
	for {
		err := look(c.t.Context())
		if err == nil {
			return time.Since(begin)
		}
		select {
		case <-c.ended:
			c.t.Fatalf("it ended: %v; last seen: %v\n%s", c.cmd.ProcessState, err, c.output)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(begin) > within {
			c.t.Fatalf("not after %s; last seen: %v\n%s", within, err, c.output)
		}
	}
}

// stop requests the end and returns the time that it took.
func (c *realChild) stop(within time.Duration) time.Duration {
	c.t.Helper()
	begin := time.Now()
	c.signal(syscall.SIGTERM)
	select {
	case <-c.ended:
	case <-time.After(within):
		c.t.Fatalf("it has not ended %s after SIGTERM:\n%s", within, c.output)
	}
	return time.Since(begin)
}

// driver is a program that fails unless its cluster has three nodes, tasks see the number of the job
// but not the variables of a launcher's process, nodes can be sorted by the largest possible
// numbers, and work can be confined to an NVLink domain.
const driver = `
import os, ray
ray.init(log_to_driver=False)
launcher = lambda: [k for k in ("PMI_FD", "SLURM_JOB_ID", "SLURM_PROCID") if k in os.environ]
tasks = [ray.remote(num_cpus=1)(launcher).remote() for _ in range(3)]
assert len(ray.nodes()) == 3, ray.nodes()
assert ray.get(tasks) == [["SLURM_JOB_ID"]] * 3, ray.get(tasks)
assert len(launcher()) == 3, launcher()
ranks = sorted(n["Resources"]["topo_rank"] for n in ray.nodes())
assert ranks == [99000000000001, 99000000000002, 99000000000003], ranks
pg = ray.util.placement_group([{"CPU": 1, "nvlink_domain_b-1": 0.001}] * 2)
ray.get(pg.ready(), timeout=30)
inside = {n["NodeID"] for n in ray.nodes() if "nvlink_domain_b-1" in n["Resources"]}
there = set(ray.util.placement_group_table(pg)["bundles_to_node_id"].values())
assert len(there) == 2 and there == inside, (there, inside)
`

// drive runs the driver with the python beside the ray command.
func (r realRay) drive(self framework.Node, endpoint framework.Endpoint) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python", "-c", driver)
	cmd.Env = self.Environ
	for name, value := range endpoint.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if output, err := cmd.CombinedOutput(); err != nil {
		r.t.Errorf("the driver failed: %v\n%s", err, output)
	}
}

// wantLogs waits until the processes of a node that should have a log have one, and fails if
// another process has one.
func (r realRay) wantLogs(node framework.Node, want map[string]bool) {
	r.t.Helper()
	for name, is := range want {
		path := filepath.Join(node.TempDir, "session_latest", "logs", name)
		_, err := os.Stat(path)
		for deadline := time.Now().Add(time.Minute); is && err != nil && time.Now().Before(deadline); _, err = os.Stat(path) {
			time.Sleep(20 * time.Millisecond)
		}
		if is != (err == nil) {
			r.t.Errorf("%s is there: %v", path, !is)
		}
	}
}

// living returns the entries of a node that are alive according to the node table.
func (r realRay) living(endpoint framework.Endpoint, name string) (alive []tableEntry) {
	r.t.Helper()
	nodes, err := gcsServer{address: endpoint.Address}.nodeTable(r.t.Context(), name)
	if err != nil {
		r.t.Fatal(err)
	}
	alive = aliveEntries(slices.DeleteFunc(nodes, func(n tableEntry) bool { return n.Name != name }))
	return alive
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// record saves an answer of the GCS as testdata for the tests that need no Ray, if
// BRINGUPD_TEST_RAY_RECORD=VERSION is set.
func record(t *testing.T, endpoint framework.Endpoint, name, method string, request []byte) {
	version := os.Getenv("BRINGUPD_TEST_RAY_RECORD")
	if version == "" {
		return
	}
	reply, err := gcsServer{address: endpoint.Address}.invokeMethod(t.Context(), method, request)
	if err == nil {
		err = os.WriteFile(filepath.Join("testdata", "ray-"+version+"-"+name+".bin"), reply, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRealRayComesUpAndGoesDown(t *testing.T) {
	r := newRealRay(t)
	self := r.node(0)
	service, endpoint, err := r.ray.HeadService(self)
	if err != nil {
		t.Fatal(err)
	}
	head := r.start(service)
	t.Logf("the head was ready after %s", head.until(time.Minute, service.CheckReady))

	members := []framework.Member{{NodeIndex: 0, Host: "n0"}, {NodeIndex: 1, Host: "n1"}, {NodeIndex: 2, Host: "n2"}}
	var workers []*realChild
	for rank := 1; rank <= 2; rank++ {
		service, err := r.ray.WorkerService(r.node(rank), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		worker := r.start(service)
		workers = append(workers, worker)
		t.Logf("worker %d was ready after %s", rank, worker.until(time.Minute, service.CheckReady))
	}
	fleet := func(ctx context.Context) error { return r.ray.CheckMembers(ctx, self, endpoint, members) }
	head.until(time.Minute, fleet)
	r.drive(self, endpoint)
	r.wantLogs(self, map[string]bool{"log_monitor.log": true, "monitor.log": true, "dashboard.log": false, "ray_client_server.err": false})
	record(t, endpoint, "alive", nodeInfoMethod, newNodesRequest(nil))
	record(t, endpoint, "selected", nodeInfoMethod, newNodesRequest([]string{"job.0-1"}))
	record(t, endpoint, "session", kvGetMethod, newSessionRequest())
	record(t, endpoint, "nokey", kvGetMethod, appendBytes(appendBytes(nil, 1, "nothing"), 2, "session"))
	record(t, endpoint, "health", healthMethod, nil)

	// A worker that is killed and restarted is listed twice until the GCS detects that the earlier one
	// is dead.
	workers[1].signal(syscall.SIGKILL)
	<-workers[1].ended
	again, err := r.ray.WorkerService(r.node(2), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	workers[1] = r.start(again)
	t.Logf("the worker was ready again after %s", workers[1].until(time.Minute, again.CheckReady))
	if err := fleet(t.Context()); err != nil {
		t.Log("then the fleet is:", err)
	} else if starts := r.living(endpoint, "job.0-2"); len(starts) != 1 {
		t.Errorf("the fleet is complete with %v", starts)
	}
	record(t, endpoint, "twice", nodeInfoMethod, newNodesRequest(nil))
	t.Logf("the earlier start was found dead after %s", head.until(2*time.Minute, fleet))

	// An orderly end is known at once.
	t.Logf("a worker ended after %s", workers[0].stop(20*time.Second))
	t.Logf("its end was known after %s", head.until(time.Minute, func(ctx context.Context) error {
		if err := fleet(ctx); err == nil || !strings.Contains(err.Error(), "node 1 (n1) is DEAD") {
			return fmt.Errorf("the fleet is %v", err)
		}
		return nil
	}))
	record(t, endpoint, "dead", nodeInfoMethod, newNodesRequest(nil))
	t.Logf("another ended after %s", workers[1].stop(20*time.Second))
	t.Logf("the head ended after %s", head.stop(20*time.Second))
}

// TestRealRayTellsOfATakenPort verifies that a start detects and explains a port that another
// process holds.
func TestRealRayTellsOfATakenPort(t *testing.T) {
	r := newRealRay(t)
	held, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	r.ray.HeadArgs = append(r.ray.HeadArgs, "--node-manager-port="+strconv.Itoa(held.Addr().(*net.TCPAddr).Port))
	node := r.node(0)
	service, _, err := r.ray.HeadService(node)
	if err != nil {
		t.Fatal(err)
	}
	head := r.start(service)
	select {
	case <-head.ended:
	case <-time.After(2 * time.Minute):
		t.Fatalf("it has not ended:\n%s", head.output)
	}
	lines := strings.Split(head.output.String(), "\n")
	if !service.IsTransient(exitOf(head.cmd), lines) {
		t.Errorf("the failure is not taken for one in passing:\n%s\n%s", head.output, strings.Join(failureLines(node.TempDir), "\n"))
	}
	t.Log(strings.Join(failureLines(node.TempDir), "\n"))
}

func exitOf(cmd *exec.Cmd) process.Exit {
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return process.Exit{Code: -1, Signal: status.Signal()}
	}
	return process.Exit{Code: status.ExitStatus()}
}
