package ray

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
)

func testNode(t *testing.T, rank int) framework.Node {
	return framework.Node{
		RunName: "job.0", TeamIndex: rank, LaunchIndex: rank, Size: 3, Host: "n" +
			strconv.Itoa(rank), Address: "127.0.0.1",
		TempDir: "/tmp/bu-" + strconv.Itoa(rank), CPUs: 4, GPUs: 8,
		Environ: []string{"SLURM_JOB_ID=17", "HOME=" + t.TempDir()},
	}
}

func TestRayServices(t *testing.T) {
	node := testNode(t, 0)
	tests := []struct {
		name   string
		ray    Cluster
		head   []string // among the head's arguments
		worker []string
	}{
		{
			"plain", Cluster{Port: 6379},
			[]string{"--port=6379", "--num-cpus=4", "--num-gpus=8",
				`--resources={"slurm_managed_ray_cluster":1,"topo_rank":1,"worker_units":8}`},
			[]string{"--address=127.0.0.1:6379", "--num-gpus=8", "--node-name=job.0-1",
				`--resources={"slurm_managed_ray_cluster":1,"topo_rank":2,"worker_units":8}`},
		},
		{
			"a head without work", Cluster{Port: 6379, DedicatedHead: true, HeadArgs: []string{"--num-cpus=0"}},
			[]string{"--num-cpus=0", "--num-gpus=0", `--resources={"ray_head":1,"slurm_managed_ray_cluster":1}`},
			[]string{"--num-cpus=4", "--num-gpus=8"},
		},
		{
			"the user's resources", Cluster{Port: 6379,
				WorkerArgs: []string{`--resources={"topo_rank": 9, "worker_units": 0}`}},
			[]string{`--resources={"slurm_managed_ray_cluster":1,"topo_rank":1,"worker_units":8}`},
			[]string{`--resources={"slurm_managed_ray_cluster":1,"topo_rank":9,"worker_units":0}`},
		},
		{
			"the user's ray and ports", Cluster{Port: 1200, WorkerArgs: []string{"--node-manager-port=1301"}},
			[]string{"ray", "start", "--port=1200"},
			[]string{"ray", "start", "--node-manager-port=1301"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			head, endpoint, err := tc.ray.HeadService(node)
			if err != nil {
				t.Fatal(err)
			}
			worker, err := tc.ray.WorkerService(testNode(t, 1), endpoint)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.head {
				if !slices.Contains(head.Argv, want) {
					t.Errorf("the head has no %s: %q", want, head.Argv)
				}
			}
			for _, want := range tc.worker {
				if !slices.Contains(worker.Argv, want) {
					t.Errorf("the worker has no %s: %q", want, worker.Argv)
				}
			}
			address := "127.0.0.1:" + strconv.Itoa(tc.ray.Port)
			if head.ReadyPort != tc.ray.Port || endpoint.Address != address || endpoint.Env["RAY_ADDRESS"] != address {
				t.Errorf("the head is at %d, and its endpoint %v", head.ReadyPort, endpoint)
			}
			if !slices.Contains(worker.Env, "SLURM_JOB_ID=17") || !slices.Contains(head.Env, "SLURM_JOB_ID=17") {
				t.Error("Ray's daemons do not have the variables of the job")
			}
		})
	}
}

func TestRayPicksAPort(t *testing.T) {
	service, endpoint, err := Cluster{}.HeadService(testNode(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	if service.ReadyPort == 0 || endpoint.Address != net.JoinHostPort("127.0.0.1",
		strconv.Itoa(service.ReadyPort)) || len(service.Ports) != 2 {
		t.Errorf("the port is %d, the endpoint %v, the ports %v", service.ReadyPort, endpoint, service.Ports)
	}
}

func TestRayHasNoWorkerOnTheHead(t *testing.T) {
	if service, err := (Cluster{}).WorkerService(testNode(t, 0),
		framework.Endpoint{Address: "127.0.0.1:1"}); service != nil || err != nil {
		t.Errorf("got %v, %v", service, err)
	}
}

// TestRayTellsAllOfAuthentication verifies that workers get the authentication mode. A head turns
// Ray's authentication on if it finds a token, a worker only if it is configured; without that its
// connection would be refused for a quarter of an hour.
func TestRayTellsAllOfAuthentication(t *testing.T) {
	node := testNode(t, 0)
	node.Environ = append(node.Environ, "RAY_AUTH_TOKEN=0123")
	head, endpoint, err := Cluster{}.HeadService(node)
	if err != nil {
		t.Fatal(err)
	}
	worker, err := Cluster{}.WorkerService(testNode(t, 1), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	const on = "RAY_AUTH_MODE=token"
	if endpoint.Env["RAY_AUTH_MODE"] != "token" || !slices.Contains(head.Env, on) || !slices.Contains(worker.Env, on) {
		t.Errorf("endpoint %v\nhead %q\nworker %q", endpoint, head.Env, worker.Env)
	}
}

// TestRayCredentials verifies that, unless the user sets a token, the run has one of its own, which
// is in no command line.
func TestRayCredentials(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	home := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(home, ".ray"), 0o700),
		os.WriteFile(filepath.Join(home, ".ray", "auth_token"), []byte("abc"), 0o600)); err != nil {
		t.Fatal(err)
	}
	ofRun := map[string]string{"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "/tmp/bu-1/ray-token"}
	const token = "3031323334353637383961626364656630313233343536373839616263646566"
	for _, tc := range []struct {
		name string
		auth string
		env  string
		file bool
		want map[string]string
	}{
		{"by default", "", "HOME=" + home, true, ofRun},
		{"auto", framework.AuthAuto, "RAY_AUTH_MODE=", true, ofRun},
		{"the user's mode", framework.AuthAuto, "RAY_AUTH_MODE=disabled", false, map[string]string{}},
		{"the user's mode without a token", framework.AuthAuto, "RAY_AUTH_MODE=Token", true, ofRun},
		{"the user's mode and a token at home", framework.AuthAuto, "RAY_AUTH_MODE=token HOME=" + home, false,
			map[string]string{}},
		{"the user's token", framework.AuthAuto, "RAY_AUTH_TOKEN=abc", false, map[string]string{}},
		{"the user's file", framework.AuthAuto, "RAY_AUTH_TOKEN_PATH=/home/u/token", false, map[string]string{}},
		{"own", framework.AuthOwn, "", false, map[string]string{}},
		{"off", framework.AuthOff, "RAY_AUTH_MODE=token", false, map[string]string{"RAY_AUTH_MODE": "disabled"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := testNode(t, 0)
			node.TempDir, node.Environ = "/tmp/bu-1", append(strings.Fields(tc.env), node.Environ...)
			got, err := Cluster{Auth: tc.auth}.NodeCredentials(node, secret)
			if err != nil {
				t.Fatal(err)
			}
			want := framework.Credentials{Env: tc.want}
			if tc.file {
				want.Files = map[string][]byte{"ray-token": []byte(token)}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRayLogs(t *testing.T) {
	for logs, always := range map[string]bool{logsFailure: false, logsEnd: true} {
		node := testNode(t, 0)
		service, _, err := Cluster{Logs: logs}.HeadService(node)
		if err != nil {
			t.Fatal(err)
		}
		want := framework.ServiceLogs{Dir: filepath.Join(node.TempDir, "session_latest", "logs"), KeepAlways: always}
		if service.OwnLogs != want {
			t.Errorf("kept is %+v, want %+v", service.OwnLogs, want)
		}
	}
}

func TestRayFleetAsksTheGCS(t *testing.T) {
	node := testNode(t, 0)
	members := []framework.Member{{NodeIndex: 0, Host: "n0"}, {NodeIndex: 1, Host: "n1"}, {NodeIndex: 2, Host: "n2"}}
	tests := []struct {
		table   string
		members []framework.Member
		full    bool
	}{
		{"alive", members, true},
		{"alive", members[:2], false},
		{"alive", append(members[:3:3], framework.Member{NodeIndex: 3, Host: "n3"}), false},
		{"twice", members, false},
		{"dead", members, false},
	}
	for _, tc := range tests {
		t.Run(tc.table+" "+strconv.Itoa(len(tc.members)), func(t *testing.T) {
			endpoint := framework.Endpoint{Address: recordedGCS(t, tc.table).serve(t)}
			if err := (Cluster{}).CheckMembers(t.Context(), node, endpoint, tc.members); (err == nil) != tc.full {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestRayServiceLooksAndClassifies verifies that the node table must show the resources given on
// the command line, and that a failure that only Ray's logs explain is recognised.
func TestRayServiceLooksAndClassifies(t *testing.T) {
	raylet := portOf(t, &fakeGCS{replies: map[string][]byte{healthMethod: recorded(t, "health")}})
	fake := recordedGCS(t, "alive")
	fake.replies[nodeInfoMethod] = tableOf(tableEntry{
		Name: "job.0-1", Address: "127.0.0.1", Port: raylet, Alive: true,
		Resources: map[string]float64{"CPU": 4, "GPU": 7},
	})
	endpoint := framework.Endpoint{Address: fake.serve(t)}
	tests := []struct {
		gpus  int
		ready bool
	}{{7, true}, {8, false}, {-1, true}}
	for _, tc := range tests {
		t.Run(strconv.Itoa(tc.gpus), func(t *testing.T) {
			node := testNode(t, 1)
			node.GPUs = tc.gpus
			node.TempDir = shortDir(t)
			sockets := filepath.Join(node.TempDir, "session_latest", "sockets")
			if err := os.MkdirAll(sockets, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(sockets, "raylet"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			service, err := Cluster{}.WorkerService(node, endpoint)
			if err != nil {
				t.Fatal(err)
			}
			if err := service.CheckReady(t.Context()); (err == nil) != tc.ready {
				t.Errorf("got %v", err)
			}
			silent := []string{"Remaining processes will be killed."}
			if service.IsTransient(process.Exit{Code: 1}, silent) {
				t.Error("a failure without a reason is taken for one in passing")
			}
			log, err := os.ReadFile(filepath.Join("testdata", "ray-2.60.0-logs", "raylet.err"))
			if err != nil {
				t.Fatal(err)
			}
			logs := filepath.Join(node.TempDir, "session_latest", "logs")
			if err := os.MkdirAll(logs, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(logs, "raylet.err"), log, 0o600); err != nil {
				t.Fatal(err)
			}
			if !service.IsTransient(process.Exit{Code: 1}, silent) {
				t.Error("a failure that the logs explain is not understood")
			}
		})
	}
}

// shortDir returns a directory with a path short enough for Ray's sockets.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bu-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestRayLooksAreBounded verifies that every check ends with its context, whatever server it uses.
func TestRayLooksAreBounded(t *testing.T) {
	node := testNode(t, 0)
	node.TempDir = withLogs(t, "session_1")
	address := fakeGCS{silent: true}.serve(t)
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := (readinessCheck{gcs: gcsServer{address: address}, tempDir: node.TempDir}).checkHead(ctx); err == nil {
		t.Error("it is ready")
	}
	if err := (Cluster{}).CheckMembers(ctx, node, framework.Endpoint{Address: address}, nil); err == nil {
		t.Error("it is complete")
	}
	if took := time.Since(begin); took > gcsCallTimeout {
		t.Errorf("it took %s (%s)", took, filepath.Base(node.TempDir))
	}
}

func TestRayVersion(t *testing.T) {
	find := (Cluster{}).Traits().ParseVersion
	for printed, want := range map[string]string{
		"ray, version 2.9.0": "2.9.0", "UserWarning: x\nray, version 3.0.0.dev0": "3.0.0.dev0",
		"usage: ray": "", "": "",
	} {
		if got := find(strings.Split(printed, "\n")); got != want {
			t.Errorf("%q: got %q, want %q", printed, got, want)
		}
	}
}

func TestObjectStore(t *testing.T) {
	for _, tc := range []struct {
		name string
		ray  Cluster
		want int64
	}{
		{"left to Ray", Cluster{}, 0},
		{"the workers'", Cluster{WorkerArgs: []string{"--object-store-memory=1000"}}, 1000},
		{"in two words", Cluster{HeadArgs: []string{"--object-store-memory", "2000"}}, 2000},
		{"the larger", Cluster{HeadArgs: []string{"--object-store-memory=1"},
			WorkerArgs: []string{"--object-store-memory=3000"}}, 3000},
		{"no number", Cluster{WorkerArgs: []string{"--object-store-memory=much"}}, 0},
		{"no flags", Cluster{WorkerArgs: []string{"much"}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.ray.Traits().ObjectStoreBytes; got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestStops(t *testing.T) {
	for command, want := range map[string]bool{
		"ray stop": true,
		"/venv/bin/python3 /venv/bin/ray stop --force": true,
		"python -m ray.scripts.scripts stop -f":        true,
		"ray status":                                   false,
		"python train.py --ray stop":                   false,
		"ray":                                          false,
		"":                                             false,
	} {
		if got := isStopCommand(strings.Fields(command)); got != want {
			t.Errorf("%q: %v", command, got)
		}
	}
}
