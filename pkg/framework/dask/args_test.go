package dask

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/framework"
)

func testNode(rank int) framework.Node {
	return framework.Node{
		RunName: "job.0", TeamIndex: rank, LaunchIndex: rank, Size: 2, Host: "n",
		Address: "127.0.0.1", TempDir: "/tmp/bu-1", CPUs: 16, GPUs: 8,
		Environ: []string{"PATH=/bin", "SLURM_JOB_ID=17"},
	}
}

func TestDaskScheduler(t *testing.T) {
	for _, tc := range []struct {
		name      string
		dask      Cluster
		want      []string // PORT stands for a free port
		dashboard string
	}{
		{
			"plain", Cluster{Port: 8786},
			[]string{"dask", "scheduler", "--host=127.0.0.1", "--port=8786", "--protocol=tls",
				"--no-dashboard", "--dashboard-address=127.0.0.1:0"}, "",
		},
		{
			"open to all", Cluster{Port: 80, Auth: framework.AuthOff},
			[]string{"dask", "scheduler", "--host=127.0.0.1", "--port=80", "--protocol=tcp",
				"--no-dashboard", "--dashboard-address=127.0.0.1:0"}, "",
		},
		{
			"with a dashboard for the node's users", Cluster{Port: 8786, SchedulerArgs: []string{"--dashboard"}},
			[]string{"dask", "scheduler", "--host=127.0.0.1", "--port=8786", "--protocol=tls",
				"--dashboard-address=127.0.0.1:PORT", "--dashboard"}, "http://127.0.0.1:PORT/status",
		},
		{
			"with a dashboard where the user wants it",
			Cluster{Port: 8786, SchedulerArgs: []string{"--dashboard", "--dashboard-address", ":8787"}},
			[]string{"dask", "scheduler", "--host=127.0.0.1", "--port=8786", "--protocol=tls",
				"--dashboard", "--dashboard-address=:8787"}, "http://127.0.0.1:8787/status",
		},
		{
			"with a dashboard whose port is Dask's choice",
			Cluster{Port: 8786, SchedulerArgs: []string{"--dashboard", "--dashboard-address=0"}},
			[]string{"dask", "scheduler", "--host=127.0.0.1", "--port=8786", "--protocol=tls",
				"--dashboard", "--dashboard-address=0"}, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			service, endpoint, err := tc.dask.HeadService(testNode(0))
			if err != nil {
				t.Fatal(err)
			}
			_, free, _ := strings.Cut(strings.TrimSuffix(endpoint.Dashboard, "/status"), "127.0.0.1:")
			for i, arg := range tc.want {
				tc.want[i] = strings.ReplaceAll(arg, "PORT", free)
			}
			if diff := cmp.Diff(tc.want, service.Argv); diff != "" {
				t.Error(diff)
			}
			if want := strings.ReplaceAll(tc.dashboard, "PORT", free); endpoint.Dashboard != want {
				t.Errorf("its pages are at %q, want %q", endpoint.Dashboard, want)
			}
			_, port, _ := strings.Cut(tc.want[3], "=")
			_, scheme, _ := strings.Cut(tc.want[4], "=")
			if address := scheme + "://127.0.0.1:" + port; endpoint.Address != address ||
				endpoint.Env[schedulerVariable] != address {
				t.Errorf("it is at %+v, not %s", endpoint, address)
			}
			hides := slices.Contains(service.Env, "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES=[]")
			if shows := slices.Contains(tc.want, "--dashboard"); hides == shows {
				t.Errorf("pages without a certificate: %v, and they are asked for: %v", !hides, shows)
			}
			encrypts := slices.Contains(service.Env, "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True")
			if encrypts != (scheme == "tls") || !slices.Contains(service.Env, "SLURM_JOB_ID=17") {
				t.Errorf("its environment is %q", service.Env)
			}
		})
	}
}

func TestDaskWorker(t *testing.T) {
	ours := func(more ...string) []string {
		return append([]string{"dask", "worker", "tls://h:1", "--name=job.0-1", "--host=127.0.0.1"}, more...)
	}
	const scratch = "--local-directory=/tmp/bu-1/dask"
	gpus := map[string]float64{"GPU": 8}
	for _, tc := range []struct {
		name   string
		args   []string
		node   func(*framework.Node)
		want   []string
		runs   string
		counts []workerInfo
	}{
		{
			"plain", nil, nil, ours("--no-nanny", scratch, "--no-dashboard", hiddenDashboard,
				"--nthreads=16", "--resources=GPU=8"), "dask worker",
			[]workerInfo{{Name: "job.0-1", Threads: 16, Resources: gpus}},
		},
		{
			"Dask sees for itself", nil, func(n *framework.Node) { n.CPUs, n.GPUs = 0, -1 },
			ours("--no-nanny", scratch, "--no-dashboard", hiddenDashboard), "dask worker",
			[]workerInfo{{Name: "job.0-1", Resources: map[string]float64{}}},
		},
		{
			"a nanny", []string{"--nanny", "--memory-limit", "4GB"}, nil,
			ours(scratch, "--no-dashboard", hiddenDashboard, "--nthreads=16", "--resources=GPU=8",
				"--nanny", "--memory-limit=4GB"), "dask nanny",
			[]workerInfo{{Name: "job.0-1", Threads: 16, Resources: gpus}},
		},
		{
			"several share the node", []string{"--nworkers=2"}, nil,
			ours("--nanny", scratch, "--no-dashboard", hiddenDashboard, "--nthreads=8",
				"--resources=GPU=4", "--nworkers=2"), "dask nanny",
			[]workerInfo{{Name: "job.0-1-0", Threads: 8, Resources: map[string]float64{"GPU": 4}},
				{Name: "job.0-1-1", Threads: 8, Resources: map[string]float64{"GPU": 4}}},
		},
		{
			"less memory than the node has", []string{"--nworkers=2"},
			func(n *framework.Node) { n.MaxMemory = 500 << 20 },
			ours("--nanny", scratch, "--no-dashboard", hiddenDashboard, "--nthreads=8",
				"--memory-limit=262144000", "--resources=GPU=4", "--nworkers=2"), "dask nanny",
			[]workerInfo{{Name: "job.0-1-0", Threads: 8, Resources: map[string]float64{"GPU": 4}},
				{Name: "job.0-1-1", Threads: 8, Resources: map[string]float64{"GPU": 4}}},
		},
		{
			"the user's own memory", []string{"--memory-limit=1GB"},
			func(n *framework.Node) { n.MaxMemory, n.CPUs, n.GPUs = 500<<20, 0, -1 },
			ours("--no-nanny", scratch, "--no-dashboard", hiddenDashboard, "--memory-limit=1GB"), "dask worker",
			[]workerInfo{{Name: "job.0-1", Resources: map[string]float64{}}},
		},
		{
			"more than there are GPUs", []string{"--nworkers=2"}, func(n *framework.Node) { n.GPUs, n.CPUs = 1, 1 },
			ours("--nanny", scratch, "--no-dashboard", hiddenDashboard, "--nthreads=1", "--nworkers=2"), "dask nanny",
			[]workerInfo{{Name: "job.0-1-0", Threads: 1, Resources: map[string]float64{}},
				{Name: "job.0-1-1", Threads: 1, Resources: map[string]float64{}}},
		},
		{
			"the user's own amounts", []string{"--nthreads=2", "--resources=MEM=1e9,DISK=2"}, nil,
			ours("--no-nanny", scratch, "--no-dashboard", hiddenDashboard, "--nthreads=2",
				"--resources=MEM=1e9,DISK=2"), "dask worker",
			[]workerInfo{{Name: "job.0-1", Threads: 2, Resources: map[string]float64{"MEM": 1e9, "DISK": 2}}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := testNode(1)
			if tc.node != nil {
				tc.node(&node)
			}
			argv, counts, err := Cluster{WorkerArgs: tc.args}.workerArgv(node, "tls://h:1")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, argv) + cmp.Diff(tc.counts, counts); diff != "" {
				t.Error(diff)
			}
			if service, err := (Cluster{WorkerArgs: tc.args}).WorkerService(node,
				framework.Endpoint{Address: "tls://h:1"}); err != nil || service.Name != tc.runs {
				t.Errorf("it is called %+v: %v", service, err)
			}
		})
	}
}

func TestDaskRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		says string
	}{
		{"the name", []string{"--name=a"}, "cannot pass --name to dask "},
		{"the address", []string{"--listen-address", "tcp://0.0.0.0:1"}, "use bringupd's --interface"},
		{"the port", []string{"--port=1"}, "use --framework-port"},
		{"another way to speak", []string{"--protocol", "tcp"}, "use --framework-auth"},
		{"another certificate", []string{"--tls-cert=/x"}, "use --framework-auth=off"},
		{"a notebook", []string{"--jupyter"}, "run code"},
		{"help", []string{"-h"}, "yourself"},
		{"no flag", []string{"tcp://h:1"}, "only flags are accepted"},
		{"a flag without its value", []string{"--nthreads"}, "has no value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := Cluster{SchedulerArgs: tc.args}.HeadService(testNode(0))
			says(t, "the scheduler", err, tc.says)
			if service, err := (Cluster{WorkerArgs: tc.args}).WorkerService(testNode(1),
				framework.Endpoint{}); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the worker is %+v: %v", service, err)
			}
		})
	}
	for _, workers := range []string{"auto", "-1", "0"} {
		if service, err := (Cluster{WorkerArgs: []string{"--nworkers=" +
			workers}}).WorkerService(testNode(1), framework.Endpoint{}); err == nil {
			t.Errorf("%s workers that can't be counted are started: %q", workers, service.Argv)
		}
	}
}

func TestDaskDedicatedHead(t *testing.T) {
	dask := Cluster{DedicatedHead: true}
	for rank, none := range []bool{true, false} {
		if service, err := dask.WorkerService(testNode(rank),
			framework.Endpoint{Address: "tls://h:1"}); err != nil || (service == nil) != none {
			t.Errorf("node %d has %+v: %v", rank, service, err)
		}
	}
}

func TestDaskPicksAPort(t *testing.T) {
	service, endpoint, err := Cluster{}.HeadService(testNode(0))
	if err != nil || service.ReadyPort == 0 || !strings.HasPrefix(endpoint.Address, "tls://127.0.0.1:") {
		t.Errorf("port %d of %+v: %v", service.ReadyPort, endpoint, err)
	}
}
